"""The policy as tables: who may be ended at which level, and who never, whatever the level."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.host.containers import parse
from supervise.model.evict import Evict
from supervise.model.need import DeviceKind, Devices, MemoryRule, Need, Port
from supervise.model.process import Container, HostId, Marker, Process, ProcessId
from supervise.model.slate import EndProcesses, Finding, Ownership
from supervise.model.snapshot import GpuReading, Gpus, GpuStatus, PortReading, PortState, Record, Snapshot
from supervise.profiles.load import load_all
from supervise.slate import runs
from supervise.slate.judge import judge
from supervise.slate.request import SlateRequest

HOST = HostId("boot", 4026531836)
ELSEWHERE = 4026539999
ME = 1000
RUN = "vllm-8000"
PROFILES = tuple(load_all().values())
NEED = Need("vllm", RUN, (), (), ports=(Port(8000, "", "http", "default"),))
INIT = Process(ProcessId(1, 1), 0, 1, 1, "S", "systemd", 0, ("/sbin/init",), namespace=HOST.pid_namespace)
OURSELVES = Process(ProcessId(500, 5000), 1, 500, 500, "S", "supervise", ME, ("supervise", "vllm", "serve", "m"))
SERVE = ("/usr/bin/python3", "/usr/bin/vllm", "serve", "m")


def process(pid: int, *argv: str, ppid: int = 1, **more) -> Process:
    more.setdefault("comm", argv[0].rpartition("/")[2][:15] if argv else "x")
    plain = Process(ProcessId(pid, pid * 10), ppid, pid, pid, "S", "", ME, argv, namespace=HOST.pid_namespace)
    return replace(plain, **more)


def snapshot(*processes: Process, holders: tuple[int, ...] = (), **more) -> Snapshot:
    everything = {p.pid: p for p in (INIT, OURSELVES, *processes)}
    held = PortReading(8000, "", PortState.HELD, tuple(everything[pid].id for pid in holders))
    more.setdefault("ports", (held,) if holders else ())
    return Snapshot(HOST, more.pop("uid", ME), more.pop("lineage", frozenset({1, 500})), everything, **more)


def request(evict: Evict = Evict.STALE, **more) -> SlateRequest:
    return SlateRequest(RUN, more.pop("need", NEED), PROFILES, evict=evict, **more)


def port(taken: Snapshot, evict: Evict = Evict.STALE, **more) -> Finding:
    return next(finding for finding in judge(taken, request(evict, **more)) if finding.kind == "port")


def targets(finding: Finding) -> set[int]:
    return {target.pid for target in finding.action.targets} if isinstance(finding.action, EndProcesses) else set()


LAUNCHER = process(40, *SERVE, comm="vllm")
CORE = process(41, "VLLM::EngineCore", ppid=40)
WORKER = process(42, "VLLM::Worker_TP0", ppid=41)
SPAWNED = process(43, "/usr/bin/python3", "-c", "from multiprocessing.spawn import spawn_main", ppid=40)
STRANGER = process(60, "/usr/bin/python3", "-m", "http.server")
SHELL = process(39, "bash", "run.sh")


# --- levels -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "holder", "doomed"),
    [
        ((LAUNCHER,), 40, {40}),
        ((LAUNCHER, CORE), 41, {40, 41}),
        ((LAUNCHER, CORE, WORKER), 42, {40, 42}),
        ((LAUNCHER, SPAWNED), 43, {40, 43}),
        ((SHELL, replace(LAUNCHER, ppid=39), CORE), 41, {40, 41}),
        ((process(38, "timeout", "9h", "vllm", "serve", "m"), replace(LAUNCHER, ppid=38)), 40, {38, 40}),
        ((process(38, *SERVE), process(39, "bash", ppid=38), replace(LAUNCHER, ppid=39), CORE), 41, {38, 41}),
        ((process(50, "python", "-m", "sglang.launch_server", "--model", "m"),), 50, {50}),
        ((process(38, "python", "demo.py"), replace(CORE, ppid=38)), 41, {41}),
        ((process(39, "tini", "--", "vllm", "serve", comm="tini"), replace(LAUNCHER, ppid=39)), 40, {40}),
    ],
    ids=["launcher", "core", "worker", "not retitled", "below a shell", "wrapper", "server in a server", "module",
         "unknown launcher", "not the reaper"],
)  # fmt: skip
def test_a_live_server_in_the_way_is_ended_as_a_whole_from_engines_on(family, holder, doomed) -> None:
    taken = snapshot(*family, holders=(holder,))
    for evict in (Evict.OWN, Evict.STALE):
        refused = port(taken, evict)
        assert (refused.action, refused.blocking, refused.ownership) == (None, True, Ownership.LIVE)
        assert refused.eviction is not None
        assert refused.eviction.level is Evict.ENGINES
        assert {target.pid for target in refused.eviction.action.targets} == doomed
        assert refused.remedy == (f"--evict engines ends it; or kill {min(doomed)}; or choose another port than 8000")
    for evict in (Evict.ENGINES, Evict.ALL):
        allowed = port(taken, evict)
        assert (targets(allowed), allowed.eviction, allowed.ownership) == (doomed, None, Ownership.LIVE)
        assert "--evict" not in allowed.remedy


@pytest.mark.parametrize(
    "stranger",
    [
        STRANGER,
        process(60, "vim", "vllm.md"),
        process(60, "bash", "-c", "vllm serve m"),
        process(60, "python", "bench.py", "--backend", "vllm"),
        process(60, "vllm", "bench", "serve"),
        process(60, "less", "VLLM::EngineCore"),
        process(60, "python", "train.py", comm="pt_main_thread"),
        process(60, "python", "-m", "mpi4py.futures.server"),
        process(60, "python", "train.py", ppid=39, comm="VLLM::EngineCor"),
    ],
    ids=lambda stranger: stranger.title,
)
def test_any_other_holder_is_ended_at_all_only(stranger: Process) -> None:
    taken = snapshot(SHELL, stranger, holders=(60,))
    for evict in (Evict.OWN, Evict.STALE, Evict.ENGINES):
        refused = port(taken, evict)
        assert (refused.action, refused.ownership) == (None, Ownership.FOREIGN)
        assert refused.remedy == "--evict all ends it; or kill 60; or choose another port than 8000"
    assert targets(port(taken, Evict.ALL)) == {60}


@pytest.mark.parametrize(
    ("above", "more"),
    [(process(38, *SERVE), {"lineage": frozenset({1, 38, 500})}), (process(38, *SERVE, uid=0), {})],
    ids=["our own ancestor", "another user's"],
)
def test_a_server_reaches_no_farther_up_than_may_be_ended(above: Process, more) -> None:
    taken = snapshot(above, replace(CORE, ppid=38), holders=(41,), **more)
    assert targets(port(taken, Evict.ENGINES)) == {41}


def test_what_has_become_our_own_child_is_not_for_that_a_run_s() -> None:
    assert targets(port(snapshot(replace(STRANGER, ppid=500), holders=(60,)), Evict.ALL)) == {60}


def test_who_holds_nothing_that_is_needed_is_no_finding_at_any_level() -> None:
    taken = snapshot(LAUNCHER, CORE, STRANGER, serving={40: (8001,)})
    for evict in Evict:
        assert judge(taken, request(evict)) == ()


def test_what_somebody_has_agreed_to_is_done_and_nothing_else() -> None:
    taken = snapshot(LAUNCHER, CORE, STRANGER, holders=(41,))
    asked = port(taken).eviction
    assert asked is not None
    agreed = frozenset(asked.action.targets)
    assert targets(port(taken, consent=agreed)) == {40, 41}
    assert targets(port(taken, consent=agreed - {CORE.id})) == set()
    assert targets(port(taken, consent=agreed - {CORE.id} | {ProcessId(41, 411)})) == set()


# --- never ------------------------------------------------------------------------------------------------------------

OTHER = Record("b", 2, "idb", HOST, ProcessId(95, 950), ProcessId(96, 960), ProcessId(40, 400))
OF_B = Marker("b", 2, "idb")
AT_WORK = process(95, "python", "x")


@pytest.mark.parametrize(
    ("family", "holder", "more"),
    [
        ((STRANGER,), 60, {"lineage": frozenset({1, 500, 60})}),
        ((LAUNCHER, CORE), 41, {"lineage": frozenset({1, 500, 41})}),
        ((LAUNCHER, CORE, process(44, "helper", ppid=41)), 41, {"lineage": frozenset({1, 500, 44})}),
        ((replace(STRANGER, uid=1001),), 60, {}),
        ((replace(STRANGER, uid=None),), 60, {}),
        ((replace(STRANGER, uid=1001),), 60, {"uid": 0}),
        ((LAUNCHER, replace(CORE, uid=1001)), 40, {}),
        ((replace(STRANGER, namespace=ELSEWHERE),), 60, {}),
        ((replace(STRANGER, namespace=None),), 60, {}),
        ((LAUNCHER, replace(CORE, namespace=ELSEWHERE)), 40, {}),
        ((process(60, "python", "-m", "vllm.weight_cache.daemon"),), 60, {}),
        ((process(60, "python", "-m", "sglang.srt.weight_cache.daemon"),), 60, {}),
        ((process(60, "/usr/bin/nvidia-cuda-mps-server"),), 60, {}),
        ((process(60, "/x/lmcache_server", "0.0.0.0", "1"),), 60, {}),
        ((process(60, "/usr/bin/python3", "/x/bin/mooncake_master"),), 60, {}),
        ((process(60, "/x/raylet"), process(61, "ray::RayWorkerProc", ppid=60)), 61, {}),
        ((process(39, "python", "/bin/vllm", "preload", "m"), replace(SPAWNED, ppid=39)), 43, {}),
        ((LAUNCHER, process(44, "python", "-m", "sglang.srt.weight_cache.daemon", ppid=40)), 40, {}),
        ((process(60, "/usr/sbin/sshd", "-D"),), 60, {}),
        ((process(60, "/usr/lib/xorg/Xorg"),), 60, {}),
        ((process(60, "/usr/bin/gnome-shell"),), 60, {}),
        ((process(60, "/usr/lib/systemd/systemd", "--user"),), 60, {}),
        ((process(60, "tmux", "new", "vllm serve m", comm="tmux: server"),), 60, {}),
        ((process(60, "/usr/bin/docker-proxy", "-host-port", "8000"),), 60, {}),
        ((replace(LAUNCHER, marker=OF_B), CORE, AT_WORK), 41, {"records": (OTHER,)}),
        ((LAUNCHER, CORE, AT_WORK), 41, {"records": (OTHER,)}),
        ((LAUNCHER, CORE, process(96, "keeper")), 41, {"records": (OTHER,)}),
        ((AT_WORK,), 95, {"records": (OTHER,)}),
        ((replace(STRANGER, ppid=95), AT_WORK), 60, {"records": (OTHER,)}),
        ((STRANGER, AT_WORK), 60, {"records": (replace(OTHER, members=(STRANGER.id,)),)}),
        ((STRANGER, AT_WORK), 60, {"records": (replace(OTHER, cgroup="/c"),), "inside": {STRANGER.id: "/c"}}),
        ((LAUNCHER, replace(AT_WORK, ppid=40)), 40, {"records": (replace(OTHER, leader=None),)}),
        ((process(39, "python", "-c", "…", comm="supervise-keep"), replace(LAUNCHER, ppid=39), CORE), 41, {}),
        ((process(39, "/usr/bin/python3", "/bin/supervise", "vllm", "serve"),), 39, {}),
        ((replace(STRANGER, state="Z"),), 60, {}),
    ],
)  # fmt: skip
def test_some_are_never_ended_whatever_the_level(family, holder, more) -> None:
    taken = snapshot(*family, holders=(holder,), **more)
    everybody = frozenset(p.id for p in taken.processes.values())
    for evict in Evict:
        found = port(taken, evict, consent=everybody)
        assert (found.action, found.eviction, found.blocking) == (None, None, True)
        assert found.remedy
        assert "--evict" not in found.remedy


def test_the_same_are_ended_once_what_protects_them_is_gone() -> None:
    """Negative control of the table: the records, the lineage and the user are what makes the difference."""
    for more in ({"records": (OTHER,)}, {}, {"uid": 0}):
        taken = snapshot(LAUNCHER, CORE, holders=(41,), **more)
        permitted = {"evict_uids": frozenset({ME})} if more.get("uid") == 0 else {}
        assert targets(port(taken, Evict.ENGINES, **permitted)) == {40, 41}


def test_root_treats_a_user_s_processes_like_its_own_only_where_it_is_told_so() -> None:
    taken = snapshot(LAUNCHER, CORE, holders=(41,), uid=0)
    assert port(taken, Evict.ALL).eviction is None
    assert targets(port(taken, Evict.ENGINES, evict_uids=frozenset({ME}))) == {40, 41}
    assert targets(port(replace(taken, uid=1001), Evict.ENGINES, evict_uids=frozenset({ME}))) == set()


def test_a_live_run_is_stopped_by_its_own_command() -> None:
    found = port(snapshot(LAUNCHER, CORE, AT_WORK, holders=(41,), records=(OTHER,)), Evict.ALL)
    assert (found.ownership, found.remedy) == (
        Ownership.LIVE,
        "supervise stop b; or choose another port than 8000",
    )


def test_what_protects_a_holder_is_told() -> None:
    ray = snapshot(process(60, "/x/raylet"), process(61, "ray::Worker", ppid=60), holders=(61,))
    found = port(ray, Evict.ALL)
    assert (found.ownership, found.evidence[-1]) == (Ownership.PROTECTED, "below pid 60 raylet, protected")
    assert found.remedy == "kill 61; or choose another port than 8000"


# --- orphans ----------------------------------------------------------------------------------------------------------

ORPHAN = process(41, "VLLM::EngineCore")


def test_an_orphan_is_a_remark_at_own_and_ended_from_stale_on() -> None:
    taken = snapshot(ORPHAN)
    (told,) = judge(taken, request(Evict.OWN))
    assert (told.action, told.blocking, told.ownership) == (None, False, Ownership.STALE)
    assert told.remedy == "--evict stale ends it; or kill 41"
    for evict in (Evict.STALE, Evict.ENGINES, Evict.ALL):
        assert [targets(found) for found in judge(taken, request(evict))] == [{41}]


def test_what_this_run_left_is_ended_at_own() -> None:
    ours = replace(OTHER, run=RUN, supervisor=ProcessId(95, 951))
    (found,) = judge(snapshot(replace(STRANGER, marker=Marker(RUN, 2, "idb")), records=(ours,)), request(Evict.OWN))
    assert targets(found) == {60}


def test_an_orphan_that_holds_the_port_refuses_the_launch_at_own() -> None:
    found = port(snapshot(ORPHAN, holders=(41,)), Evict.OWN)
    assert (found.action, found.remedy.partition(";")[0]) == (None, "--evict stale ends it")


def test_an_orphan_that_serves_another_port_too_is_a_live_server() -> None:
    taken = snapshot(ORPHAN, holders=(41,), serving={41: (8000, 9000)})
    assert (port(taken).action, port(taken).ownership) == (None, Ownership.LIVE)
    assert targets(port(taken, Evict.ENGINES)) == {41}
    assert judge(replace(taken, ports=()), request(Evict.ALL))[0].action is None


def test_a_worker_below_an_orphan_goes_with_it() -> None:
    taken = snapshot(ORPHAN, process(42, "VLLM::Worker_TP0", ppid=41), holders=(42,))
    found = port(taken)
    assert (targets(found), found.ownership) == ({41, 42}, Ownership.STALE)


@pytest.mark.parametrize("uids", [frozenset(), frozenset({ME})])
def test_root_ends_another_user_s_orphan_only_where_it_is_told_so(uids: frozenset[int]) -> None:
    found = judge(snapshot(ORPHAN, uid=0), request(evict_uids=uids))
    assert [targets(each) for each in found] == ([{41}] if uids else [])


@pytest.mark.parametrize(
    ("orphan", "more"),
    [
        (ORPHAN, {"records": (replace(OTHER, members=(ORPHAN.id,)),)}),
        (replace(ORPHAN, marker=OF_B), {"records": (OTHER,)}),
        (ORPHAN, {"records": (replace(OTHER, cgroup="/c"),), "inside": {ORPHAN.id: "/c"}}),
        (replace(ORPHAN, namespace=ELSEWHERE), {}),
    ],
)
def test_an_orphan_that_somebody_contains_is_no_finding(orphan: Process, more) -> None:
    assert judge(snapshot(orphan, AT_WORK, **more), request(Evict.ALL)) == ()
    (found,) = judge(snapshot(ORPHAN, AT_WORK), request())
    assert targets(found) == {41}


def test_an_orphan_with_something_protected_below_it_is_told_and_not_ended() -> None:
    daemon = process(44, "python", "-m", "sglang.srt.weight_cache.daemon", ppid=41)
    (found,) = judge(snapshot(ORPHAN, daemon), request(Evict.ALL))
    assert (found.action, found.blocking, found.evidence[-1]) == (None, False, "pid 44 python is protected")


@pytest.mark.parametrize(
    "comm", ["VLLM::EngineCor", "VLLM::Worker_TP", "VLLM::Worker", "sglang::schedul", "sgl_diffusion::"]
)
@pytest.mark.parametrize("argv", [None, ()])
def test_the_kernel_s_name_alone_wants_a_second_proof(comm: str, argv) -> None:
    orphan = process(41, comm=comm, argv=argv)
    (told,) = judge(snapshot(orphan), request(Evict.ALL))
    assert (told.action, told.blocking, told.ownership) == (None, False, Ownership.UNKNOWN)
    assert targets(port(snapshot(orphan, holders=(41,)))) == {41}
    assert targets(port(snapshot(orphan, holders=(41,)), Evict.OWN)) == set()
    assert targets(port(snapshot(orphan, holders=(41,), serving={41: (8000, 9000)}))) == set()
    child = replace(orphan, ppid=39)
    assert judge(snapshot(SHELL, child), request(Evict.ALL)) == ()
    assert targets(port(snapshot(SHELL, child, holders=(41,)), Evict.ENGINES)) == set()


@pytest.mark.parametrize("comm", ["VLLM", "vllm::EngineCor", "VLLM::Engine", "sglang", "kworker/0:1"])
def test_another_name_is_no_engine_s(comm: str) -> None:
    assert judge(snapshot(process(41, comm=comm, argv=())), request(Evict.ALL)) == ()


WEAK = [
    process(70, "/usr/local/cuda/bin/nvcc", "-c", "x.cu"),
    process(71, "cicc"),
    process(72, "ninja", "-v"),
    process(73, "/usr/bin/python3", "/x/torch/_inductor/compile_worker/__main__.py", "--parent=9"),
]


@pytest.mark.parametrize("evict", list(Evict))
def test_compilers_without_a_launcher_are_told_in_one_line_and_never_ended(evict: Evict) -> None:
    (found,) = judge(snapshot(*WEAK), request(evict))
    assert (found.subject, found.action, found.blocking) == ("4 orphaned compilers", None, False)
    assert found.remedy == "if nobody needs them: kill 70 71 72 73"
    assert judge(snapshot(SHELL, *(replace(each, ppid=39) for each in WEAK)), request(evict)) == ()
    assert judge(snapshot(*(replace(each, uid=0) for each in WEAK)), request(evict)) == ()


def test_old_names_are_told_of_orphans_only() -> None:
    old = process(60, "python", "x.py", comm="pt_main_thread")
    told = "perhaps left by an old engine: pt_main_thread, its launcher is gone, ppid 1 systemd"
    assert judge(snapshot(old), request(Evict.ALL)) == ()
    assert told in port(snapshot(old, holders=(60,))).evidence
    assert told not in port(snapshot(SHELL, replace(old, ppid=39), holders=(60,))).evidence


def test_workers_of_our_own_raylet_are_ours_and_others_are_not() -> None:
    ours = replace(OTHER, run=RUN, supervisor=ProcessId(95, 951), keeper=None)
    raylet = process(80, "/x/raylet", marker=Marker(RUN, 2, "idb"))
    theirs = (process(82, "/x/raylet"), process(83, "ray::IDLE", ppid=82))
    worker = process(81, "ray::RayWorkerProc", ppid=80)
    found = judge(snapshot(raylet, worker, *theirs, process(84, "bash", ppid=80), records=(ours,)), request())
    assert [targets(each) for each in found] == [{80}, {81}]
    assert found[1].evidence[0] == "of the raylet of attempt 2"


# --- several holders, containers --------------------------------------------------------------------------------------


def test_all_who_share_a_port_are_named_and_all_are_ended() -> None:
    second = process(61, *SERVE)
    found = port(snapshot(LAUNCHER, second, holders=(40, 61)))
    assert [told for told in found.evidence if told.startswith("held by")] == [
        f"held by pid {pid} {' '.join(SERVE)}" for pid in (40, 61)
    ]
    assert "kill 40" in found.remedy
    assert "kill 61" in found.remedy
    assert targets(port(snapshot(LAUNCHER, second, holders=(40, 61)), Evict.ENGINES)) == {40, 61}


def test_the_farthest_level_of_all_who_share_it_counts() -> None:
    taken = snapshot(LAUNCHER, STRANGER, holders=(40, 60))
    found = port(taken, Evict.ENGINES)
    assert (found.action, found.eviction and found.eviction.level) == (None, Evict.ALL)
    assert targets(port(taken, Evict.ALL)) == {40, 60}


def test_nobody_is_ended_in_vain_where_one_of_them_must_stay() -> None:
    found = port(snapshot(LAUNCHER, replace(STRANGER, uid=1001), holders=(40, 60)), Evict.ALL)
    assert (found.action, found.eviction) == (None, None)


def test_a_holder_in_a_container_is_named_with_it_and_the_container_is_stopped() -> None:
    inside = replace(STRANGER, namespace=ELSEWHERE)
    found = port(snapshot(inside, holders=(60,), containers={60: Container("docker", "ab" * 32)}), Evict.ALL)
    assert "in container abababababab (docker)" in found.evidence
    assert found.remedy == "docker stop abababababab; or choose another port than 8000"


def test_the_published_port_of_a_container_is_not_its_proxy_s() -> None:
    proxy = process(60, "/usr/bin/docker-proxy", "-proto", "tcp", "-host-port", "8000", uid=0)
    found = port(snapshot(proxy, holders=(60,)), Evict.ALL)
    assert found.remedy.startswith("docker stop $(docker ps -q --filter publish=8000); or ")


@pytest.mark.parametrize(("uid", "words"), [(ME, "as root"), (0, "ss -tlnp")])
def test_a_port_without_a_visible_holder_says_what_to_do(uid: int, words: str) -> None:
    held = (PortReading(8000, "", PortState.HELD),)
    found = port(snapshot(ports=held, uid=uid), Evict.ALL)
    assert (found.action, found.ownership, found.blocking) == (None, Ownership.UNKNOWN, True)
    assert words in found.remedy
    assert "another namespace's" in found.evidence[1]
    assert ("another user's" in found.evidence[1]) == (uid != 0)


ID = "0123456789abcdef" * 4
POD = "kubepods-burstable-pod1b.slice"


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        (f"12:memory:/docker/{ID}\n11:cpu:/docker/{ID}\n", "docker"),
        (f"0::/system.slice/docker-{ID}.scope\n", "docker"),
        (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{ID}.scope\n", "docker"),
        (f"0::/machine.slice/libpod-{ID}.scope\n", "podman"),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", "podman"),
        (f"3:pids:/libpod_parent/libpod-{ID}\n", "podman"),
        (f"0::/system.slice/nerdctl-{ID}.scope\n", "nerdctl"),
        (f"0::/kubepods.slice/kubepods-burstable.slice/{POD}/cri-containerd-{ID}.scope\n", "cri"),
        (f"0::/kubepods.slice/kubepods-burstable.slice/{POD}/crio-{ID}.scope\n", "cri"),
        (f"5:cpu:/kubepods/burstable/pod1b/{ID}\n", "cri"),
        (f"0::/system.slice/containerd.service/{POD}:cri-containerd:{ID}\n", "cri"),
        (f"1:name=systemd:/\n0::/docker/{ID}/init.scope\n", "docker"),
        (f"0::/lxc.payload.box/system.slice/docker-{ID}.scope\n", "docker"),
    ],
)
def test_a_container_is_told_by_its_cgroup(text: str, engine: str) -> None:
    assert parse(text) == Container(engine, ID)


@pytest.mark.parametrize("text", ["0::/lxc.payload.box/user.slice\n", "4:cpu:/lxc/box\n"])
def test_an_lxc_container_is_told_by_its_name(text: str) -> None:
    assert parse(text) == Container("lxc", "box")


@pytest.mark.parametrize(
    "text",
    [
        "", "0::/\n", "nonsense", "0::/user.slice/user-1000.slice/session-2.scope\n",
        "0::/system.slice/docker.service\n", "0::/system.slice/containerd.service\n", f"0::/home/{ID}\n",
        f"0::/docker/{ID[:12]}\n", f"0::/machine.slice/libpod-conmon-{ID}.scope\n", f"0::/crio-conmon-{ID}.scope\n",
        "0::/lxc.monitor.box\n", "0::/docker\n", "0::/kubepods/burstable/pod1b\n", "0::/a/lxc/box\n",
    ],
)  # fmt: skip
def test_nothing_else_is_a_container(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("container", "command"),
    [
        (Container("docker", ID), "docker stop 0123456789ab"),
        (Container("podman", ID), "podman stop 0123456789ab"),
        (Container("cri", ID), "crictl stop 0123456789ab"),
        (Container("lxc", "a-long-name-of-a-box"), "lxc-stop -n a-long-name-of-a-box"),
    ],
)
def test_each_runtime_has_its_command(container: Container, command: str) -> None:
    assert container.stop == command


# --- GPUs -------------------------------------------------------------------------------------------------------------


def test_the_holder_of_a_gpu_s_memory_is_judged_alike() -> None:
    device = GpuReading(0, "GPU-0", "H200", 100 * 2**30, 10 * 2**30, ((42, 80 * 2**30),))
    need = replace(
        NEED, ports=(), devices=Devices(DeviceKind.ALL), memory_fraction=0.9, memory_rule=MemoryRule.OF_TOTAL
    )
    taken = snapshot(LAUNCHER, CORE, WORKER, gpus=Gpus(GpuStatus.READ, (device,)))
    (refused,) = judge(taken, request(need=need))
    assert (refused.action, refused.eviction and refused.eviction.level) == (None, Evict.ENGINES)
    (allowed,) = judge(taken, request(Evict.ENGINES, need=need))
    assert targets(allowed) == {40, 42}


# --- whatever the processes -------------------------------------------------------------------------------------------

COMMANDS = st.sampled_from(
    [
        SERVE,
        ("VLLM::EngineCore",),
        ("VLLM::Worker_TP0",),
        ("python", "-m", "sglang.launch_server"),
        ("python", "-m", "sglang.srt.weight_cache.daemon"),
        ("/usr/bin/nvidia-cuda-mps-server",),
        ("/x/raylet",),
        ("ray::IDLE",),
        ("/usr/sbin/sshd",),
        ("bash",),
        (),
        None,
    ]
)
PROCESSES = st.builds(
    lambda pid, argv, comm, ppid, uid, namespace, state, marker: process(
        pid, comm=comm, argv=argv, ppid=ppid, uid=uid, namespace=namespace, state=state, marker=marker
    ),
    st.integers(2, 40),
    COMMANDS,
    st.sampled_from(["x", "VLLM::EngineCor", "pt_main_thread", "supervise-keep", "sshd"]),
    st.one_of(st.just(1), st.integers(1, 40)),
    st.sampled_from([ME, ME, ME, 0, 1001, None]),
    st.sampled_from([HOST.pid_namespace] * 4 + [ELSEWHERE, None]),
    st.sampled_from("SSSDZ"),
    st.sampled_from([None, None, OF_B, Marker("c", 1, "idc")]),
)
HERDS = st.lists(PROCESSES, min_size=1, max_size=25, unique_by=lambda p: p.pid)


def _line(taken: Snapshot, pid: int) -> list[Process]:
    """A process and its ancestors, found in another way than the policy does."""
    line: list[Process] = []
    while pid in taken.processes and taken.processes[pid] not in line:
        line.append(taken.processes[pid])
        pid = taken.processes[pid].ppid
    return line


@given(
    HERDS,
    st.sets(st.integers(2, 40), max_size=4),
    st.lists(st.integers(2, 40), min_size=1, max_size=3),
    st.sampled_from(Evict),
    st.sampled_from([0, ME]),
    st.sampled_from([frozenset(), frozenset({1001})]),
    st.booleans(),
)
def test_no_action_ever_reaches_who_must_not_be_ended(herd, ours, holders, evict, uid, uids, agreed) -> None:
    known = {each.pid for each in herd}
    working = replace(OTHER, supervisor=ProcessId(30, 300), keeper=ProcessId(31, 310), leader=ProcessId(32, 320))
    working = replace(working, members=(ProcessId(33, 330),))
    taken = snapshot(
        *herd,
        holders=tuple(pid for pid in holders if pid in known),
        lineage=frozenset({1, 500} | ours),
        uid=uid,
        records=(working,),
    )
    consent = frozenset(each.id for each in herd) if agreed else frozenset()
    asked = request(evict, evict_uids=uids, consent=consent)
    at_work = runs.at_work(working, taken, asked)
    allowed = {uid, *(uids if uid == 0 else ())}
    for finding in judge(taken, asked):
        for doomed in targets(finding) | {t.pid for t in (finding.eviction.action.targets if finding.eviction else ())}:
            assert taken.processes[doomed].namespace == HOST.pid_namespace
            below = [pid for pid in known if taken.processes[doomed] in _line(taken, pid)]
            for pid in {doomed, *below}:
                reached = taken.processes[pid]
                assert pid not in taken.lineage
                assert reached.uid in allowed
                assert reached.namespace in (HOST.pid_namespace, None)
                assert reached.comm != "sshd"
                assert not any(word in reached.title for word in ("weight_cache", "mps-server", "/x/raylet"))
                if at_work:
                    told = (working.supervisor, working.keeper, working.leader, *working.members)
                    line = _line(taken, pid)
                    assert not any(each.marker == OF_B or each.id in told for each in line)
            assert not any("weight_cache" in each.title or "/x/raylet" in each.title for each in _line(taken, doomed))
