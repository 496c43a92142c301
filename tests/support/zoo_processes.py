"""Exhibits that run, and what they hold: orphaned engines, ports, trees that were killed, System V segments."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from supervise.model.evict import Evict
from tests.support import zoo_animal
from tests.support.waiting import alive
from tests.support.zoo import SHM, Zoo, age, kill, unique


def orphans(zoo: Zoo, port: int, elsewhere: int) -> None:
    """Engines that have renamed themselves and lost their launcher; those who only mention them; a living server."""
    zoo.process("orphans", Evict.STALE, "VLLM::EngineCore")
    zoo.process("orphans", Evict.STALE, "VLLM::Worker_TP0")
    zoo.process("orphans", Evict.STALE, "VLLM::Worker_TP1", ignore_term=True)
    zoo.process("orphans", Evict.STALE, "VLLM::DPCoordinator")
    zoo.process("orphans", Evict.STALE, "sglang::scheduler_TP0")
    zoo.process("orphans", Evict.STALE, "sglang::detokenizer", ignore_term=True)
    zoo.process("orphans", None, "vim", "VLLM::EngineCore.md")
    zoo.process("orphans", None, "tail", "-f", "/var/log/vllm.log")
    zoo.process("orphans", None, "python3", "bench.py", "--backend", "vllm", "--port", str(port))
    zoo.process(
        "orphans", None, "sh", "-c", f": vllm serve /models/tiny --port {port} VLLM::Worker_TP0 sglang::scheduler"
    )
    zoo.process("orphans", None, "VLLM::EngineCare")
    served = ["python3", "/opt/bin/vllm", "serve", "/models/other", "--port", str(elsewhere)]
    living, _ = zoo.animal("VLLM::EngineCore", launcher=served, listen=[elsewhere])
    zoo.show("orphans", "engine of a living server", f"pid {living.pid}", lambda: alive(living), None)


def ports(zoo: Zoo, bound: int, shared: int, others: tuple[int, int]) -> None:
    """A port that an orphan has bound and does not listen on, and one that two share; bystanders beside them."""
    zoo.process("ports", Evict.STALE, "VLLM::APIServer_0", bind=[bound])
    zoo.process("ports", None, "python3", "vllm_proxy.py", bind=[others[0]])
    for number in (0, 1):
        zoo.process("ports", Evict.STALE, f"sglang::tokenizer_worker:{number}", listen=[shared], share=True)
        zoo.process("ports", None, "python3", "router.py", f"sglang::{number}", listen=[others[1]], share=True)
    for port, level in ((bound, Evict.STALE), (shared, Evict.STALE), (others[0], None), (others[1], None)):
        zoo.show("ports", f"port {port}", f"port {port}", _held(port), level)


def _held(port: int) -> Callable[[], bool]:
    def held() -> bool:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return True
        return False

    return held


def trees(zoo: Zoo) -> None:
    """Multiprocessing trees: some killed as a whole, with Python's resource tracker, some alive."""
    for living in (False, False, True, True):
        said = zoo.tree()
        if not living:
            kill(said["members"], said["popen"])
        level = None if living else Evict.ENGINES
        label = "of a living tree" if living else "of a killed tree"
        for what in ("segment", "semaphore"):
            zoo.file("multiprocessing", age(SHM / said[what]), level, f"{what} {label}")


def sysv(zoo: Zoo) -> None:
    """Segments whose creator is dead and that nobody is attached to; one that is attached, one of a living creator."""
    for _ in range(2):
        _segment(zoo, _of_the_dead(), "of a dead creator", Evict.ENGINES)
    _, said = zoo.animal("python3", "kv_store.py", attach=True)
    _segment(zoo, said["segment"], "attached", None)
    _segment(zoo, zoo_animal.new_segment(), "of a living creator", None)


def _of_the_dead() -> int:
    code = "import sys\nsys.path[0] = sys.argv[1]\nimport zoo_animal\nprint(zoo_animal.new_segment())"
    command = [sys.executable, "-c", code, str(Path(zoo_animal.__file__).parent)]
    return int(subprocess.run(command, capture_output=True, check=True, timeout=20).stdout)


def _segment(zoo: Zoo, number: int, label: str, level: Evict | None) -> None:
    zoo.later(zoo_animal.drop_segment, number)
    zoo.show("System V", label, f"System V segment {number}", lambda: number in _segments(), level)


def _segments() -> set[int]:
    """Ids of all there are (proc(5), /proc/sysvipc/shm)."""
    with open("/proc/sysvipc/shm", encoding="ascii") as table:
        return {int(line.split()[1]) for line in table.readlines()[1:]}


def engine_segments(zoo: Zoo) -> None:
    """Names in /dev/shm that say whose they are: nobody's any more, in use, of a living owner, not an engine's."""
    dead = zoo.dead_pid()
    for name in (
        f"vllm_offload_{unique()}.mmap",
        f"vllm_mm_{unique()}{unique()}",
        f"VLLM_OBJECT_STORAGE_SHM_BUFFER_{unique()}",
        f"sgl_shm_mm_{dead}_{unique()}",
        f"multi_tokenizer_args_{dead}",
    ):
        zoo.file("segments", _shm(name), Evict.STALE)
    mapped, held = _shm(f"vllm_offload_{unique()}.mmap"), _shm(f"vllm_mm_{unique()}{unique()}")
    user, _ = zoo.animal("python3", "kv_store.py", map=[str(mapped)], hold=[str(held)])
    zoo.file("segments", mapped, None)
    zoo.file("segments", held, None)
    # A segment is younger than its owner.
    zoo.file("segments", _shm(f"sgl_shm_mm_{user.pid}_{unique()}", aged=False), None)
    zoo.file("segments", _shm(f"model-{unique()}-00001-of-00002.safetensors"), None)
    zoo.file("segments", _shm(f"vllm_weight_cache_{unique()}"), None)


def _shm(name: str, *, aged: bool = True) -> Path:
    path = SHM / name
    path.write_bytes(b"x" * 4096)
    path.chmod(0o600)
    return age(path) if aged else path
