"""A visit to the zoo: everything is built, the real command line is let in, and it is looked at who is left.

Run as a program: `python -m tests.support.zoo_visit BASE POLICY`; prints one JSON object. A POLICY is one of --evict's,
or `twin`: then a program that is no engine is cleaned for, which no leftover of one spoils. It is the reaper of what it
orphans, under the name of a container's init: so that an engine's orphan is one wherever this runs. In a PID namespace
and with a /dev/shm of its own it touches nobody else's.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from supervise.host import kernel
from supervise.model.evict import Evict
from tests.support import orphanage, zoo_files, zoo_packages, zoo_processes
from tests.support.zoo import Exhibit, Zoo, free_ports

TWIN = "twin"
_DEADLINE_S = 60.0
_SETTLES_S = 13.0
# What nobody is let to remove is told in one line for all of its kind, which says how many there are.
_TOGETHER = {
    "multiprocessing": re.compile(r" (\d+) segments in /dev/shm"),
    "System V": re.compile(r" (\d+) System V segments"),
}


class Told(NamedTuple):
    """What one `clean` said: status, everything it named, what it did something about, standard error."""

    status: int
    named: str
    acted: list[str]
    stderr: str


def main() -> None:
    base, word = Path(sys.argv[1]), sys.argv[2]
    orphanage.rename("tini")
    kernel.become_subreaper()
    zoo = Zoo(base)
    try:
        commands = build(zoo)
        report = twin(zoo) if word == TWIN else visit(zoo, Evict(word), commands)
    finally:
        zoo.close()
    print(json.dumps(report))


def build(zoo: Zoo) -> list[list[str]]:
    """Furnish the zoo; returns the options and command lines that are cleaned for, one after the other."""
    bound, shared, elsewhere, *others = free_ports(5)
    zoo_packages.engines(zoo)
    zoo_processes.sysv(zoo)
    zoo_processes.engine_segments(zoo)
    settled = time.monotonic() + _SETTLES_S
    zoo_processes.orphans(zoo, bound, elsewhere)
    zoo_processes.ports(zoo, bound, shared, (others[0], others[1]))
    zoo_processes.trees(zoo)
    zoo_files.sockets(zoo)
    zoo_files.locks(zoo)
    zoo_files.dumps(zoo)
    package = zoo_files.bytecode(zoo)
    options = ["--packages", "--artefacts", str(zoo.tmp / zoo_files.DUMPS), "--package", str(package)]
    # Files are made to look old; when a segment of System V was made, only the kernel says.
    time.sleep(max(0.0, settled - time.monotonic()))
    return [
        [*options, "vllm", "serve", "m", "--port", str(bound)],
        ["sglang", "serve", "--model-path", "m", "--port", str(shared)],
    ]


def visit(zoo: Zoo, policy: Evict, commands: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Look, clean, and clean again."""
    before = [exhibit.present() for exhibit in zoo.exhibits]
    looked = [clean(zoo, "--evict", policy, "--dry-run", *command) for command in commands]
    untouched = [exhibit.present() for exhibit in zoo.exhibits]
    told = [clean(zoo, "--evict", policy, *command) for command in commands]
    rows = [_row(exhibit, policy, looked, told, zoo.exhibits) for exhibit in zoo.exhibits]
    again = [clean(zoo, "--evict", policy, *command) for command in commands]
    return {
        "built": all(before),
        "untouched": all(untouched),
        "looked": [said._asdict() for said in looked],
        "told": [said._asdict() for said in told],
        "again": [said._asdict() for said in again],
        "exhibits": rows,
    }


def twin(zoo: Zoo) -> dict[str, Any]:
    """Clean for a program that is no engine."""
    told = [clean(zoo, "sleep", "1")]
    return {
        "told": [said._asdict() for said in told],
        "exhibits": [_row(e, Evict.OWN, told, told, zoo.exhibits) for e in zoo.exhibits],
    }


def _row(
    exhibit: Exhibit, policy: Evict, looked: Sequence[Told], told: Sequence[Told], exhibits: Sequence[Exhibit]
) -> dict[str, Any]:
    together = _TOGETHER.get(exhibit.kind) if exhibit.leftover and not exhibit.due(policy) else None
    number = sum(other.leftover for other in exhibits if other.kind == exhibit.kind)

    def named(said: Told) -> bool:
        return _names(exhibit.subject, said.named) or bool(together and str(number) in together.findall(said.named))

    return {
        "kind": exhibit.kind,
        "label": exhibit.label,
        "subject": exhibit.subject,
        "leftover": exhibit.leftover,
        "due": exhibit.due(policy),
        "foreseen": any(named(said) for said in looked),
        "found": any(named(said) for said in told),
        "acted": any(_names(exhibit.subject, " ".join(said.acted)) for said in told),
        "present": exhibit.present(),
    }


def _names(subject: str, text: str) -> bool:
    """Whether a report names it, whole."""
    return re.search(rf"(?<!\S){re.escape(subject)}(?=[\s,:]|$)", text, re.MULTILINE) is not None


def clean(zoo: Zoo, *arguments: str) -> Told:
    """`supervise clean --json ARGUMENTS…`."""
    done = subprocess.run(
        [sys.executable, "-m", "supervise", "clean", "--json", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_DEADLINE_S,
        check=False,
        env=zoo.env,
    )
    runs = json.loads(done.stdout)["runs"] if done.stdout else []
    findings = [found for run in runs for part in ("outcomes", "obstacles", "remarks") for found in run[part]]
    named = "\n".join(f" {found['subject']} {' '.join(found['evidence'])} " for found in findings) + "\n"
    acted = [f"{found['kind']} {found['subject']}" for run in runs for found in run["outcomes"]]
    return Told(done.returncode, named, acted, done.stderr)


if __name__ == "__main__":
    main()
