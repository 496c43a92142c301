"""What a group leaves on the host besides processes: shared memory segments and its private directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from supervise.host import files, removal, shm
from supervise.model.litter import FileId, FileType
from supervise.model.process import Process
from supervise.model.slate import Verdict

# Names that engines and their libraries give their segments (FIELD.md C5). Somebody's model file in /dev/shm is mapped
# by the server just the same, so that being mapped by our group alone proves nothing.
ENGINE_NAMES = re.compile(
    r"psm_|sem\.|torch_|nccl-|cuda\.shm\.|vllm_(?!weight_cache)|VLLM_|sgl_shm_|sglang_(?!weight_cache)|"
    r"multi_tokenizer_args_|__KMP_REGISTERED_LIB_|.*-cpushm"
)


@dataclass(frozen=True, slots=True)
class Left:
    """Names removed at the end, and names that should be gone but are not."""

    removed: list[str]
    remaining: list[str]


class Leftovers:
    """Remembers by inode which /dev/shm files a group used, and removes those that nobody uses at its end.

    Only files that did not exist before the launch and bear an engine's name are taken for the group's own.

    Args:
        before: segments that existed before the launch.
        runtime_dir: the attempt's private directory, None without one.
        owner: the marker id that proves that directory ours.
    """

    def __init__(self, before: frozenset[FileId], runtime_dir: str | None = None, owner: str = "") -> None:
        self.files: set[FileId] = set()
        self.pids: set[int] = set()
        self._before = before
        self._runtime_dir = runtime_dir
        self._owner = owner

    def note(self, members: Iterable[Process]) -> bool:
        """Remember these processes and the segments that they map or hold open; True if any of it is new."""
        before = len(self.files), len(self.pids)
        candidates = self._candidates()
        for member in members:
            self.pids.add(member.pid)
            # To read what hundreds of processes map takes longer than to end them: only if there can be something.
            if candidates:
                self.files.update(candidates & (shm.mapped_by(member.pid) or frozenset()))
        return (len(self.files), len(self.pids)) != before

    def recall(self, files: Iterable[FileId]) -> None:
        """Add segments that were noted by whoever held the group before."""
        self.files.update(files)

    def _candidates(self) -> frozenset[FileId]:
        """What may be the group's: young enough, and with a name that engines give."""
        young = (segment for segment in shm.segments() if segment.file not in self._before)
        return frozenset(segment.file for segment in young if ENGINE_NAMES.match(segment.name))

    def remove(self) -> Left:
        """Remove what is provably ours and unused; call it once the group is empty."""
        left = Left([], [])
        for segment in shm.segments() if self.files else ():
            if segment.file in self.files:
                path = f"{shm.DIRECTORY}/{segment.name}"
                gone = removal.remove(path, segment.file, FileType.REGULAR, os.geteuid()) is Verdict.GONE
                (left.removed if gone else left.remaining).append(path)
        if self._runtime_dir and not files.remove_private_directory(self._runtime_dir, self._owner):
            left.remaining.append(self._runtime_dir)
        return left
