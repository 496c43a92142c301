"""How far `--evict` goes, on real processes: live servers, strangers, and who shares a port."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervise.host import containers, procfs
from supervise.model.evict import Evict
from supervise.model.need import DeviceKind, Devices, Need, Port
from supervise.model.process import Process, ProcessId
from supervise.model.slate import Ownership, SlateResult, Verdict
from supervise.model.snapshot import Gpus, GpuStatus, Record
from supervise.profiles.load import load_all
from supervise.slate import SlateRequest, sweep
from supervise.slate.request import Host
from tests.support import launcher, orphanage
from tests.support.family import Family

RUN = "vllm-test"
# A server as it is typed: `vllm` behind python, which keeps its command line and starts what is retitled.
SERVER = f"""
import json, os, sys
sys.path.insert(0, {os.path.dirname(orphanage.__file__)!r})
import orphanage
orphanage.be(json.loads(sys.argv[-1]), sys.argv[-2], os.open("/dev/null", os.O_RDONLY))
"""


def here() -> dict[int, Process]:
    """Only what this test has started, and our ancestors: the machine may be running others' engines."""
    everything = procfs.scan()
    mine = {process.pid for process in procfs.descendants(everything, os.getpid())} | procfs.lineage()
    return {pid: process for pid, process in everything.items() if pid in mine}


def clean(port: int, evict: Evict = Evict.STALE, **more: Any) -> SlateResult:
    need = Need(
        profile="vllm",
        run=RUN,
        argv=(),
        program=(),
        ports=(Port(port, "127.0.0.1", "http", "--port"),),
        devices=Devices(DeviceKind.NONE),
    )
    request = SlateRequest(RUN, need, tuple(load_all().values()), deadline_s=20.0, evict=evict, **more)
    return sweep(request, Host(scan=here, gpus=lambda: Gpus(GpuStatus.ABSENT)))


Start = Callable[..., Family]


@pytest.fixture
def start(tmp_path: Path, short_dir: Path) -> Iterator[Start]:
    """Starts programs that become what a SPEC of the orphanage says, behind the words given."""
    started: list[tuple[subprocess.Popen[bytes], Family]] = []

    def begin(name: str, spec: dict[str, Any], *words: str) -> Family:
        script = tmp_path / name
        script.write_text(SERVER)
        family = Family(short_dir / f"pids-{len(started)}")
        command = [sys.executable, str(script), *words, str(family.path), json.dumps(spec)]
        started.append((subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True), family))
        family.wait_for(spec["role"])
        return family

    yield begin
    for process, family in started:
        family.kill()
        process.wait(20)


def serving(port: int, **more: Any) -> dict[str, Any]:
    """What `vllm serve` looks like: a launcher whose retitled child holds the port, with a child of its own."""
    worker = {"role": "worker", "title": "VLLM::Worker_TP0"}
    return {"role": "server", "child": {"role": "engine", "title": "VLLM::EngineCore", "child": worker, **more}}


def bindable(port: int) -> bool:
    with socket.socket() as trial:
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def test_a_live_server_that_holds_the_port_is_ended_whole_and_only_where_the_policy_says_so(start, port):
    family = start("vllm", serving(port, listen=[port]), "serve", "m")
    everybody = {"server", "engine", "worker"}
    elsewhere = launcher.free_port()
    bystander = start("vllm", serving(elsewhere, listen=[elsewhere]), "serve", "m")

    refused = clean(port)
    (obstacle,) = refused.obstacles
    server = family.members["server"].pid
    assert (refused.outcomes, refused.clean, obstacle.ownership) == ((), False, Ownership.LIVE)
    assert obstacle.remedy == (f"--evict engines ends it; or kill {server}; or choose another port than {port}")
    assert any(told.startswith(f"of the server pid {server} ") for told in obstacle.evidence)
    assert family.living == everybody
    assert not bindable(port)

    ended = clean(port, Evict.ENGINES)
    assert ended.clean, ended
    assert [(outcome.verdict, outcome.did) for outcome in ended.outcomes] == [(Verdict.GONE, "ended")]
    assert f"port {port} bindable" in ended.checks
    assert (family.living, bystander.living) == (set(), everybody)
    assert bindable(port)
    assert clean(port, Evict.ENGINES).outcomes == ()


def test_what_is_consented_to_is_ended_without_the_option(start, port):
    family = start("vllm", serving(port, listen=[port]), "serve", "m")
    asked = clean(port).obstacles[0].eviction
    assert asked is not None
    other = asked.action.targets[0]._replace(ticks=1)
    assert not clean(port, consent=frozenset({other, *asked.action.targets[1:]})).clean
    assert family.living == {"server", "engine", "worker"}
    assert clean(port, consent=frozenset(asked.action.targets)).clean
    assert family.living == set()


def test_a_server_that_only_loads_yet_holds_its_port_and_is_named_or_said_to_be_invisible(start, port):
    family = start("vllm", serving(port, bind=[port]), "serve", "m")
    (obstacle,) = clean(port).obstacles
    told = " ".join((*obstacle.evidence, obstacle.remedy))
    assert "--evict engines" in told or "no holder is visible" in told
    assert family.living == {"server", "engine", "worker"}


@pytest.mark.parametrize("evict", [Evict.OWN, Evict.STALE, Evict.ENGINES])
def test_any_other_holder_is_ended_at_all_only(start, port, evict):
    family = start("http_server.py", {"role": "stranger", "listen": [port]})
    (obstacle,) = clean(port, evict).obstacles
    assert (obstacle.ownership, obstacle.action) == (Ownership.FOREIGN, None)
    assert obstacle.remedy.startswith(f"--evict all ends it; or kill {family.members['stranger'].pid}; or ")
    assert family.living == {"stranger"}
    assert clean(port, Evict.ALL).clean
    assert (family.living, bindable(port)) == (set(), True)


def test_nothing_that_holds_another_port_is_ended_at_all(start, port):
    family = start("vllm", serving(port, listen=[port]), "serve", "m")
    result = clean(launcher.free_port(), Evict.ALL)
    assert (result.clean, result.outcomes) == (True, ())
    assert family.living == {"server", "engine", "worker"}


def test_a_server_with_a_weight_cache_below_it_is_never_ended(start, port, tmp_path):
    """The one that holds the port is an engine's, what is below it is not to be touched: so neither is."""
    daemon = {"role": "daemon", "title": "python -m sglang.srt.weight_cache.daemon"}
    family = start("vllm", {"role": "server", "listen": [port], "child": daemon}, "serve", "m")
    (obstacle,) = clean(port, Evict.ALL).obstacles
    assert (obstacle.action, obstacle.eviction) == (None, None)
    assert family.living == {"server", "daemon"}


def test_a_run_at_work_is_never_ended(start, port):
    family = start("vllm", serving(port, listen=[port]), "serve", "m")
    gone = ProcessId(2**22 - 1, 1)
    other = Record("other", 2, "id", procfs.host_id(), family.members["server"], gone, None)
    (obstacle,) = clean(port, Evict.ALL, records=(other,)).obstacles
    assert obstacle.remedy == f"supervise stop other; or choose another port than {port}"
    assert family.living == {"server", "engine", "worker"}
    dead = Record("other", 2, "id", procfs.host_id(), gone, gone, None)
    assert clean(port, Evict.ALL, records=(dead,)).clean
    assert family.living == set()


def test_an_orphan_is_left_alone_at_own_and_told(start, port, tmp_path):
    family = Family(tmp_path / "orphans")
    command = [sys.executable, orphanage.__file__, "--tell", str(family.path)]
    spec = json.dumps({"role": "engine", "title": "VLLM::EngineCore"})
    reaper = subprocess.Popen([*command, spec], stdin=subprocess.DEVNULL)
    try:
        family.wait_ready()
        told = clean(port, Evict.OWN)
        engine = family.members["engine"].pid
        assert [finding.remedy for finding in told.remarks] == [f"--evict stale ends it; or kill {engine}"]
        assert (told.clean, told.outcomes) == (True, ())
        assert "engine" in family.living
        assert clean(port).clean
        assert "engine" not in family.living
    finally:
        family.kill()
        reaper.kill()
        reaper.wait(20)


def test_all_who_share_a_port_are_named_and_ended_together(port):
    """Two servers on one port, as SO_REUSEPORT lets them (FIELD.md A2 row 37)."""
    code = (
        "import signal, socket, sys\n"
        "server = socket.socket()\n"
        "server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)\n"
        "server.bind(('127.0.0.1', int(sys.argv[1])))\n"
        "server.listen()\n"
        "print(flush=True)\n"
        "signal.pause()\n"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(port)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()
        (obstacle,) = clean(port, Evict.ENGINES).obstacles
        told = " ".join(obstacle.evidence)
        assert all(f"held by pid {process.pid} " in told for process in started)
        assert [process.poll() for process in started] == [None, None]
        assert clean(port, Evict.ALL).clean
        assert all(process.wait(20) for process in started)
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_our_own_container_is_none():
    assert containers.container_of(os.getpid()) is None
    assert containers.containers_of([os.getpid(), 2**22 - 1]) == {}
