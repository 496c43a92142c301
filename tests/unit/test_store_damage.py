"""Whatever stands in the files of the store: it is read, or it is a damaged file, and neither ends a supervise."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervise.attempts.pruning import Pruning
from supervise.attempts.store import Run, Store
from supervise.host import procfs
from supervise.model.snapshot import LOST_ID
from supervise.verbs import select
from supervise.verbs import status as verb

FILES = ("attempt", "outcome", "run")
WORDS = """
    id host supervisor keeper leader guard segments members runtime_dir cgroup attempt state phase tiers outcome
    exit_status verified failed first_failure survivors cause text pid ticks boot_id pid_namespace version
"""
KEYS = WORDS.split()
HERE = procfs.host_id()._asdict()
US = procfs.self_id()._asdict()
SOUND = {
    "attempt": {"id": "id1", "host": HERE, "members": [[4194304, 5]], "segments": [[1, 2]], "leader": US},
    "outcome": {"outcome": "died", "exit_status": 1, "failed": True, "verified": False, "cause": {"text": "no memory"}},
    "run": {"host": HERE, "supervisor": None, "attempt": 1, "state": "ready", "phase": None, "tiers": []},
}
DAMAGED = [
    float("inf"),
    float("nan"),
    -1,
    2**70,
    10**400,
    1.5,
    True,
    "",
    "\0",
    "\ud800",
    "text",
    [],
    [1],
    [[1]],
    [[1, 2, 3]],
    [["a", "b"]],
    [{"pid": 1}],
    {},
    {"pid": float("inf"), "ticks": float("nan")},
    {"pid": 1, "ticks": 10**400},
    {"boot_id": [], "pid_namespace": {}},
    {"text": ["x"]},
]

numbers = st.integers() | st.floats() | st.sampled_from([10**400, 2**63, -(2**31)])
scalars = st.none() | st.booleans() | numbers | st.text(max_size=5) | st.sampled_from(["\ud800", "\0", "/tmp/x"])
values = st.recursive(
    scalars | st.sampled_from([HERE, US]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)
contents = st.dictionaries(st.sampled_from(KEYS), values, max_size=8)
written = st.fixed_dictionaries({name: contents.map(lambda said, name=name: SOUND[name] | said) for name in FILES})


def write(root: Path, said: dict[str, object]) -> Run:
    """A run with one attempt, in whose three files that stands."""
    run = Store(str(root)).run("r")
    path = Path(run.path) / "attempts/0001"
    path.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        file = Path(run.path) / "run.json" if name == "run" else path / f"{name}.json"
        file.write_text(json.dumps(said[name]))
    return run


def read_all(run: Run, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read it as the slate, `status` and `prune` do."""
    store = Store(str(root))
    assert [each.name for each in store.runs()] == ["r"]
    for record in store.records():
        assert all(0 < member.pid < 2**31 for member in (record.leader, record.keeper, *record.members) if member)
        hash(record)
    with monkeypatch.context() as patch:
        patch.setattr(select.procfs, "scan", dict)
        described = verb._describe(run)
        verb._line(described).encode()
        json.dumps(described)
    run.prune(Pruning(), running=1)


@given(written | st.fixed_dictionaries(dict.fromkeys(FILES, values)))
def test_whatever_stands_there_is_read_without_an_exception(said: dict[str, object]) -> None:
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        read_all(write(Path(root), said), Path(root), patch)


@pytest.mark.parametrize("damaged", DAMAGED, ids=str)
@pytest.mark.parametrize("name", FILES)
def test_every_key_may_be_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, damaged: object) -> None:
    for key in KEYS:
        read_all(write(tmp_path, SOUND | {name: SOUND[name] | {key: damaged}}), tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("key", "damaged"),
    [
        *((key, float("inf")) for key in ("runtime_dir", "cgroup", "members", "segments", "leader", "id", "host")),
        ("runtime_dir", ["/tmp/x"]),
        ("runtime_dir", "relative"),
        ("runtime_dir", "/tmp/\0"),
        ("cgroup", {"/": 1}),
        ("id", ["id1"]),
        ("leader", {"pid": 10**400, "ticks": 1}),
        ("leader", {"pid": 0, "ticks": 1}),
        ("leader", {"pid": "1", "ticks": 1}),
        ("leader", {"pid": True, "ticks": 1}),
        ("segments", None),
        ("members", [[1, float("nan")]]),
    ],
    ids=str,
)
def test_a_record_with_one_damaged_value_is_lost_as_a_whole(tmp_path: Path, key: str, damaged: object) -> None:
    write(tmp_path, SOUND)
    (sound,) = Store(str(tmp_path)).records()
    assert (sound.marker_id, sound.leader) == ("id1", procfs.self_id())
    write(tmp_path, SOUND | {"attempt": SOUND["attempt"] | {key: damaged}})
    (lost,) = Store(str(tmp_path)).records()
    assert (lost.marker_id, lost.members, lost.segments, lost.runtime_dir) == (LOST_ID, (), (), None)


@pytest.mark.parametrize("damaged", [1, "yes", float("nan"), [True]])
def test_a_damaged_outcome_verifies_nothing(tmp_path: Path, damaged: object) -> None:
    write(tmp_path, SOUND | {"outcome": SOUND["outcome"] | {"verified": True}})
    assert Store(str(tmp_path)).records() == ()
    write(tmp_path, SOUND | {"outcome": SOUND["outcome"] | {"verified": damaged}})
    assert len(Store(str(tmp_path)).records()) == 1


@pytest.mark.parametrize("text", ["[" * 100_000, '{"id":' * 100_000])
def test_what_is_nested_too_deeply_is_damaged(tmp_path: Path, text: str) -> None:
    run = write(tmp_path, SOUND)
    (Path(run.path) / "attempts/0001/attempt.json").write_text(text)
    (Path(run.path) / "run.json").write_text(text)
    (lost,) = Store(str(tmp_path)).records()
    assert (lost.marker_id, run.read_state()) == (LOST_ID, None)


def test_names_that_are_no_numbers_are_no_attempts(tmp_path: Path) -> None:
    run = write(tmp_path, SOUND)
    for name in ("²", "٣", "-1", "9" * 200, "x", ".removed-0001"):
        (Path(run.path) / "attempts" / name).mkdir()
    assert run.numbers() == [1]


@pytest.mark.parametrize("text", ["9" * 200, "-5", "inf", "²", "", "1e3"])
def test_a_damaged_sequence_begins_behind_the_newest_attempt(tmp_path: Path, text: str) -> None:
    run = write(tmp_path, SOUND)
    (Path(run.path) / "sequence").write_text(text)
    assert run.open_attempt().number == 2


def test_names_that_no_run_can_have_are_no_runs(tmp_path: Path) -> None:
    write(tmp_path, SOUND)
    for name in (b"caf\xe9", b"-x", b"a b"):
        (tmp_path / name.decode("utf-8", "surrogateescape") / "attempts").mkdir(parents=True)
    assert [run.name for run in Store(str(tmp_path)).runs()] == ["r"]
