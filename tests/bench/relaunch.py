"""Relaunch over orphans: who brings a server up where a killed one has left its processes, segments and port.

Every try has a PID namespace and a /dev/shm of its own, since pkill(1) and fuser(1) look at the whole host. In it: 19
processes titled like vLLM's without a launcher, four of them in sessions of their own and with an empty environment,
one of them listening on the port; four segments, an hour old, with names that say they are vLLM's, two of them mapped;
and somebody else's program whose name and command line mention vllm. No supervise has ever seen any of it: there is no
record.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # a script finds its own directory only

from supervise.host import signals
from tests.bench import managers
from tests.support import zoo_alone
from tests.support.family import Family
from tests.support.launcher import free_port

ROOT = Path(__file__).resolve().parents[2]
_ORPHANAGE = ROOT / "tests/support/orphanage.py"
_SHM = Path("/dev/shm")
_PATIENCE_S = 20.0
_DEADLINE_S = 90.0
_NAME = "fresh"
STALE, SEGMENTS, ESCAPED = 19, 4, 4


class UnavailableError(Exception):
    """There is no such tool here, or no namespace to run it in; says why."""


@dataclass(frozen=True)
class Try:
    """What became of one try; seconds until the new server answered, None if it never did; its last words then."""

    up_s: float | None
    stale: int
    segments: int
    bystander: bool
    said: str


@dataclass(frozen=True)
class Contestant:
    """One way to start a server: from its command line, its port and a directory of its own to a shell script."""

    name: str
    script: Callable[[list[str], int, Path], str]


def _recipe(kill: str) -> Callable[[list[str], int, Path], str]:
    return lambda server, port, _: f"{kill.format(port=port)}; sleep 2; exec {shlex.join(server)}\n"


def _supervisord(server: list[str], _: int, directory: Path) -> str:
    """With its defaults: it starts a program that ends at once four times."""
    (directory / "supervisord.conf").write_text(
        f"[supervisord]\nnodaemon=true\nlogfile=/dev/null\nlogfile_maxbytes=0\npidfile={directory}/pid\n"
        f"[program:server]\ncommand={shlex.join(server)}\nredirect_stderr=true\nstdout_logfile=/dev/null\n"
    )
    return f"exec {shlex.quote(_found('supervisord'))} -n -c {shlex.quote(str(directory / 'supervisord.conf'))}\n"


def _ours(server: list[str], _: int, directory: Path) -> str:
    return f"exec {shlex.join(managers.SUPERVISE.command(server, directory))}\n"


OURS = Contestant("supervise", _ours)
RECIPES = (
    Contestant('pkill -f "vllm serve"; sleep 2', _recipe('pkill -f "vllm serve"')),
    Contestant("pkill -i vllm; sleep 2", _recipe("pkill -i vllm")),
    Contestant("fuser -k PORT/tcp; sleep 2", _recipe("fuser -k {port}/tcp")),
)
CONTESTANTS = (*RECIPES, Contestant("supervisord", _supervisord), OURS)


def available(contestant: Contestant) -> str | None:
    """Why this one cannot be tried here, None if it can."""
    try:
        with tempfile.TemporaryDirectory(prefix="sv-") as directory:
            words = shlex.split(contestant.script(["server"], 1, Path(directory)))
    except UnavailableError as error:
        return str(error)
    tool = words[1] if words[0] == "exec" else words[0]
    return None if shutil.which(tool) else f"missing: {tool}"


def attempt(contestant: Contestant, *, ignore_term: bool, directory: Path) -> Try:
    """Have one try in a place of its own; blocking, about as long as the server takes to come up, or 20 s.

    Args:
        contestant: which.
        ignore_term: whether everything stale ignores SIGTERM.
        directory: an empty one of its own, with a short path.

    Raises:
        RuntimeError: the stage could not be set.
    """
    program = [sys.executable, str(Path(__file__).resolve()), contestant.name, str(int(ignore_term)), str(directory)]
    return Try(**zoo_alone.told(program, directory, managers.environment(), _DEADLINE_S))


def main() -> None:
    """Set the stage, have the try, tell what is left: the first process of the place, with which all of it ends."""
    name, ignore_term, directory = sys.argv[1], bool(int(sys.argv[2])), Path(sys.argv[3])
    contestant = next(one for one in CONTESTANTS if one.name == name)
    port = free_port()
    segments = [_segment(f"vllm_offload_{n}aa.mmap") for n in range(2)] + [_segment(f"vllm_mm_{n}bb") for n in range(2)]
    orphans = _orphans(port, segments[::2], directory / "orphans", ignore_term=ignore_term)
    bystander = _bystander(directory)
    server = [str(_program(directory)), "serve", "model", "--port", str(port)]
    server += ["--served-name", _NAME, "--load-s", "0.2"]
    script = directory / "relaunch.sh"  # typed into a file: a shell that has it in its own command line kills itself
    script.write_text(contestant.script(server, port, directory))
    with (directory / "said").open("wb") as said:
        begun = time.monotonic()
        started = subprocess.Popen(
            ["sh", str(script)], stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=directory
        )
        up_s = _wait_up(port, begun, started)
    stale = [member for role, member in orphans.members.items() if role != "init"]
    left = [member for member in stale if signals.alive(member)]
    words = "" if up_s is not None else (directory / "said").read_text(errors="replace")[-2000:]
    found = Try(up_s, len(left), sum(path.exists() for path in segments), bystander.poll() is None, words)
    assert len(stale) == STALE
    print(json.dumps(asdict(found)))


def _orphans(port: int, mapped: Sequence[Path], told: Path, *, ignore_term: bool) -> Family:
    common: dict[str, Any] = {"ignore_term": ignore_term}
    specs = [common | {"role": "api", "title": "VLLM::APIServer_0", "listen": [port]}]
    for number in range(9):
        engine = common | {"role": f"engine{number}", "title": f"VLLM::EngineCore_DP{number}"}
        worker = common | {"role": f"worker{number}", "title": f"VLLM::Worker_DP{number}"}
        if number < ESCAPED:
            specs.append(worker | {"env": False})
        else:
            engine["child"] = worker
        specs.append(engine)
    specs[1]["map"] = [path.name for path in mapped]
    family = Family(told)
    subprocess.Popen([sys.executable, "-I", "-S", str(_ORPHANAGE), "--tell", str(told), *map(json.dumps, specs)])
    return family.wait_ready(60.0)


def _segment(name: str) -> Path:
    path = _SHM / name
    path.write_bytes(b"x" * 65536)
    path.chmod(0o600)
    then = time.time() - 3600  # nobody is just about to use it
    os.utime(path, (then, then))
    return path


def _bystander(directory: Path) -> subprocess.Popen[bytes]:
    """A program of somebody else: `vllm-exporter`, by its name, its command line and its comm."""
    program = directory / "vllm-exporter"
    program.write_text(f"#!{sys.executable} -IS\nimport signal\nprint(flush=True)\nwhile True: signal.pause()\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    popen = subprocess.Popen([program, "--scrape", "http://vllm:8000/metrics"], stdout=subprocess.PIPE)
    assert popen.stdout is not None
    popen.stdout.readline()
    return popen


def _program(directory: Path) -> Path:
    """The stand-in as a program called `vllm`."""
    (directory / "bin").mkdir()
    program = directory / "bin/vllm"
    program.write_text(
        f"#!{sys.executable} -IS\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from supervise.demo.server import main\nmain()\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def _wait_up(port: int, begun: float, started: subprocess.Popen[bytes]) -> float | None:
    """Seconds until the new server, and nobody else, answers."""
    while time.monotonic() - begun < _PATIENCE_S:
        ended = started.poll() is not None
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=0.5) as answer:
                if _NAME in answer.read().decode():
                    return time.monotonic() - begun
        except OSError:
            pass
        if ended:
            return None
        time.sleep(0.01)
    return None


def _found(name: str) -> str:
    """A tool from $BENCH_PEERS/bin, from beside our Python, or from the search path."""
    peers = [str(Path(home) / "bin") for home in (os.environ.get("BENCH_PEERS"),) if home]
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join([*peers, beside, os.environ.get("PATH", os.defpath)])
    found = shutil.which(name, path=path)
    if found is None:
        raise UnavailableError("missing: not in $BENCH_PEERS/bin, not on PATH")
    return found


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    main()
