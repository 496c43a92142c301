"""What the checks know of a launch; each thing is read once, and only if a check asks for it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from supervise.host import files
from supervise.host.within import within
from supervise.model.need import Need
from supervise.model.preflight import Level
from supervise.model.profile import Profile
from supervise.model.snapshot import Gpus
from supervise.preflight import place
from supervise.preflight.place import Kind, Place
from supervise.profiles import config, load, match
from supervise.profiles.arguments import Arguments
from supervise.profiles.values import Values
from supervise.profiles.wrappers import WRAPPERS

if TYPE_CHECKING:
    from supervise.host.checkpoint import Checkpoint

MODEL_S = 2.0
"""How long a model's files may take to read, in seconds; whatever blocks is left after as much again."""

VLLM, SGLANG = "vllm", "sglang"
# Of the programs that start other programs, those that change neither files, directory, user nor host.
_HARMLESS = """
chrt dumb-init env ionice nice nohup numactl prlimit setsid stdbuf taskset time timeout tini
"""
_MOVES = ("-C", "--chdir")
# With one of these the engine reads a model in another way than is known here.
_UNUSUAL = (
    "--hf-config-path",
    "--config-format",
    "--hf-overrides",
    "--json-model-override-args",
    "--model-impl",
    "--omni",
)
_UNUSUAL_ENV = (
    "VLLM_MODEL_REDIRECT_PATH",
    "VLLM_USE_MODELSCOPE",
    "SGLANG_USE_MODELSCOPE",
    "VLLM_TEST_FORCE_LOAD_FORMAT",
)
_PLAIN_FORMATS = (None, "auto", "hf", "safetensors")
_SHORTEST_FLAG = 5
_LARGEST_YAML = 16 * 1024 * 1024
_VERSION = re.compile(r"(\d+)\.(\d+)")
_READ = {VLLM: (0, 32)}


class NotReadError(Exception):
    """What a check would have judged could not be read."""


@dataclass(frozen=True)
class Launch:
    """A launch: what it needs, the environment that its engine will see, the GPUs as read, where our own files go.

    `watch` are absolute paths of what the user works on.
    """

    need: Need
    env: Mapping[str, str]
    gpus: Gpus
    state_dir: str | None = None
    watch: tuple[str, ...] = ()

    @property
    def profile(self) -> str:
        """Name of the engine's profile."""
        return self.need.profile

    @property
    def packages(self) -> tuple[str, ...]:
        """The distributions that the engine is installed from."""
        return self._profile.packages

    @cached_property
    def certain(self) -> bool:
        """Whether the engine is sure to see the same files as we do, and to be the engine that we take it for.

        Its name alone proves nothing: a script called `vllm` may start a container.
        """
        # Of a YAML, nested values are not understood here, and may change how the model is read.
        from_file = any(self.mentions(flag) for flag in self._profile.config_flags)
        return bool(self._matched and self._same_place and self.builds and not from_file and self._models <= 1)

    @cached_property
    def builds(self) -> frozenset[str]:
        """The engine's versions in the installation of its own interpreter, empty if they cannot be told."""
        from supervise.host import distribution, interpreter

        python, _ = interpreter.find(self.need.program, self.env, before=self.need.wrappers)
        site = python.site if python else ()
        return frozenset(each.version for each in distribution.find(self.profile, site))

    def is_new(self) -> bool:
        """Whether the engine's version is one whose own text has been read for the checks."""
        numbers = [_VERSION.match(build) for build in self.builds]
        newest = _READ.get(self.profile)
        return newest is not None and all(found and (int(found[1]), int(found[2])) >= newest for found in numbers)

    @cached_property
    def unusual(self) -> str | None:
        """A flag or variable with which the engine does not read the model's files as usual; None if there is none."""
        flags = (flag for flag in _UNUSUAL if self.mentions(flag))
        return next(flags, None) or next((name for name in _UNUSUAL_ENV if self.env.get(name)), None)

    @cached_property
    def load_format(self) -> str | None:
        """How the weights are to be loaded, as given; "?" if that is not clear."""
        if not self.mentions("--load-format"):
            return None
        return next(iter(self.arguments.flags.get("--load-format", ())), "?")

    @property
    def plain_weights(self) -> bool:
        """Whether the engine reads safetensors files, or pickled ones, in the usual way."""
        return self.load_format in _PLAIN_FORMATS

    @property
    def place(self) -> Place:
        """Where the model is.

        Raises:
            OSError: it cannot be told.
        """
        return self._read[0]

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The model's files; None if it is no directory here.

        Raises:
            OSError: they cannot be read, or not in time.
        """
        return self._read[1]

    @property
    def files(self) -> Checkpoint | None:
        """The model's files for checks that go without.

        Raises:
            NotReadError: they cannot be read, or not in time; the `model` check tells why.
        """
        try:
            return self._read[1]
        except OSError:
            raise NotReadError from None

    @cached_property
    def revision(self) -> str:
        """The revision of a model on the hub."""
        return next(iter(self.arguments.flags.get("--revision", ())), "main")

    @cached_property
    def arguments(self) -> Arguments:
        """The engine's flags, those of its YAML included."""
        matched = match.match(self.need.argv, load.load_all())
        if matched.profile.name != self.profile:
            matched = matched.with_profile(load.load_all(), self.profile)
        found, _ = config.resolve(matched.arguments, matched.profile, _read_text)
        return found

    def number(self, name: str) -> int | None:
        """A value of the profile by its name, such as `pp`, as a whole number."""
        return Values(self._profile, self.arguments, self.env).number(name)

    def mentions(self, flag: str) -> bool:
        """Whether a flag was given, perhaps abbreviated, perhaps with a path into it (`--hf-overrides.key`)."""
        return any(
            given == flag or given.startswith(f"{flag}.") or (self._may_be_short(given) and flag.startswith(given))
            for given in self.arguments.flags
        )

    def worst(self, *, sure: bool) -> Level:
        """REFUSAL if the fact is sure to end the launch and the engine is sure to meet it, else WARNING."""
        return Level.REFUSAL if sure and self.certain else Level.WARNING

    @property
    def _read(self) -> tuple[Place, Checkpoint | None]:
        if isinstance(self._reading, OSError):
            raise self._reading
        return self._reading

    @cached_property
    def _reading(self) -> tuple[Place, Checkpoint | None] | OSError:
        """One reading for all checks, whether or not it went well: what hangs once would hang again."""
        caches, weights = tuple(self.arguments.flags.get("--download-dir", ())), self.plain_weights

        from supervise.host import checkpoint

        def read() -> tuple[Place, Checkpoint | None]:
            found = place.find(self.need.model, self.env, caches, self.revision)
            local = found.kind in (Kind.LOCAL, Kind.CACHED)
            return found, checkpoint.read(found.path, MODEL_S, weights=weights) if local else None

        try:
            return within(2 * MODEL_S, read)
        except (OSError, ValueError) as error:
            return error if isinstance(error, OSError) else OSError(0, str(error))

    @property
    def _profile(self) -> Profile:
        return load.load_all()[self.profile]

    def _may_be_short(self, flag: str) -> bool:
        """Whether a flag is none that the profile knows, and so may stand for a longer one."""
        known = self._profile
        owned = {flag for spec in known.values.values() for flag in spec.flags}
        exact = owned | known.switches | known.lists | set(known.config_flags)
        return len(flag) >= _SHORTEST_FLAG and flag not in exact

    @property
    def _models(self) -> int:
        """How often a model is named by its flag: which of several counts is the engine's own affair."""
        return sum(word.partition("=")[0] in ("--model", "--model-path") for word in self.need.program)

    @property
    def _matched(self) -> bool:
        return match.match(self.need.argv, load.load_all()).profile.name == self.profile

    @property
    def _same_place(self) -> bool:
        before = len(self.need.argv) - len(self.need.program)
        wrappers = self.need.argv[:before]
        if self.need.argv[before:] != self.need.program or _may_move(wrappers):
            return False
        return all(
            os.path.basename(word) in _HARMLESS.split() for word in wrappers if os.path.basename(word) in WRAPPERS
        )


def _may_move(wrappers: Sequence[str]) -> bool:
    """Whether env(1) may change the directory that relative paths begin at."""
    return "env" in map(os.path.basename, wrappers) and any(word.startswith(_MOVES) for word in wrappers)


def _read_text(path: str) -> str:
    """What is no file, such as a pipe, would be emptied for the engine.

    Raises:
        OSError: it cannot be read.
    """
    return files.read_regular(path, _LARGEST_YAML).decode()
