"""The cgroup tier under a real systemd: units with and without `Delegate=yes`, `--scope`, and what is left: nothing."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervise.host import cgroupfs
from tests.support.hydra import ROLES
from tests.support.hydra_census import Tree
from tests.support.launcher import NOBODY, Launched, Supervise
from tests.support.sdbox import RUNTIME, USER, Box
from tests.support.waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.root

UNIT = "supervise-trial.service"
GRACE_S = 0.3
# Nothing but a cgroup knows that these belong to anybody once those who contain them are dead.
UNKNOWN = ("env-cleared", "ghost")

REQUIRED = ("--require-tier", "cgroup")
DELEGATED = ("Delegate=yes", "KillMode=mixed")


class Inside(Supervise):
    """`supervise` as a user of the box, and the trees that it runs.

    Args:
        base: a directory of the test's own, which is shared with the box.
        box: the box.
        uid: who runs it.
        runtime: its XDG_RUNTIME_DIR; by that systemd-run finds its service manager.
    """

    def __init__(self, base: Path, box: Box, uid: int, runtime: str | None = None) -> None:
        super().__init__(base, uid)
        self.box = box
        self.runtime = runtime
        self.trees: list[Tree] = []

    @property
    def env(self) -> dict[str, str]:
        """What it gets inside, where nothing is inherited."""
        names = ("HOME", "XDG_STATE_HOME", "TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "COLUMNS")
        everywhere = {name: value for name, value in super().env.items() if name in names}
        return everywhere | ({"XDG_RUNTIME_DIR": self.runtime} if self.runtime else {})

    def tree(self, *roles: str) -> tuple[Tree, list[str]]:
        """A tree that is to be, and the command line that makes it."""
        tree = Tree(self.tmp / f"pids-{len(self.trees)}")
        self.trees.append(tree)
        return tree, ["--name", "X", "--grace", str(GRACE_S), *self.hydra("--tell-namespace", *roles, pids=tree.path)]

    def inside(self, *arguments: object, python: tuple[str, ...] = ()) -> Launched:
        """Start `supervise ARGUMENTS…` outside of any unit; its exit status is passed on, signals are not."""
        return self._started(*python or (self.python,), "-m", "supervise", *arguments, user=self.uid, env=self.env)

    def unit(self, *arguments: object, properties: tuple[str, ...]) -> Launched:
        """Start it as a service.

        The process that is returned is systemd-run: it ends with the status of the service, and tells its result on
        standard output.
        """
        said = self.base / f"{len(self._launched)}.err"
        settings = (*properties, "Type=exec", f"User={self.uid}", f"Group={self.uid}", f"StandardError=append:{said}")
        given = [f"--property={setting}" for setting in settings]
        variables = [f"--setenv={name}={value}" for name, value in self.env.items()]
        service = ("systemd-run", "--wait", "--collect", f"--unit={UNIT}", *given, *variables, "--")
        return self._started(*service, self.python, "-m", "supervise", *arguments, together=True)

    def send(self, signum: signal.Signals, *whom: str) -> None:
        """Signal `supervisor`, `guard` or `keeper`."""
        self.box.run("kill", f"-{signum.name[3:]}", *(self.record()[who]["pid"] for who in whom))

    @property
    def leaf(self) -> str:
        """The recorded leaf, as it is named inside."""
        return str(self.record()["cgroup"])

    def in_leaf(self) -> frozenset[int]:
        """Who the kernel says is in it."""
        return cgroupfs.pids(str(self.box.outside(self.leaf)))

    def close(self) -> None:
        """End everything that is left."""
        self.box.clear(UNIT)
        super().close()
        for tree in self.trees:
            tree.kill()

    def _started(
        self, *argv: object, user: int | None = None, env: dict[str, str] | None = None, together: bool = False
    ) -> Launched:
        number = len(self._launched)
        out, err = self.base / f"{number}.out", self.base / f"{number}.err"
        with out.open("ab") as stdout, err.open("ab") as stderr:
            streams = (stdout, stdout if together else stderr)
            process = self.box.start(*argv, stdout=streams[0], stderr=streams[1], user=user, env=env)
        launched = Launched(process, out, err)
        self._launched.append(launched)
        return launched


Enter = Callable[..., Inside]


@pytest.fixture
def enter(box: Box, short_dir: Path) -> Iterator[Enter]:
    """Makes the one user of the box that a test is about."""
    made: list[Inside] = []

    def make(uid: int, runtime: str | None = None) -> Inside:
        made.append(Inside(short_dir, box, uid, runtime))
        return made[-1]

    yield make
    for inside in made:
        inside.close()


def ready(inside: Inside, tree: Tree) -> None:
    """Wait for the whole tree; every member of it runs."""
    wait_until(lambda: tree.refresh().ready, failure=inside.said)
    assert tree.living == set(tree.members)


@contextlib.contextmanager
def frozen(cgroup: Path) -> Iterator[None]:
    """Whoever is in it comes to nothing meanwhile, except to its end by SIGKILL (cgroup-v2.rst, cgroup.freeze)."""
    (cgroup / "cgroup.freeze").write_text("1")
    try:
        wait_until(lambda: "frozen 1" in (cgroup / "cgroup.events").read_text())
        yield
    finally:
        (cgroup / "cgroup.freeze").write_text("0")


def assert_held_by(inside: Inside, tree: Tree, unit: str) -> None:
    """The tree, and nobody else, is in a leaf of its own below the cgroup of the unit."""
    assert inside.record()["tiers"] == ["subreaper", "cgroup"]
    assert inside.leaf.startswith(f"{unit}/supervise-X-"), inside.leaf
    assert inside.in_leaf() == {member.pid for member in tree.members.values()}


def assert_nothing_left(inside: Inside, *trees: Tree) -> None:
    """No process by any way of finding one, and no cgroup: systemd removes that of a unit that is over."""
    marker = inside.record()["id"]
    unit = inside.box.outside(os.path.dirname(inside.leaf))
    assert [left for tree in trees for left in tree.left(marker)] == []
    wait_until(lambda: not unit.exists(), failure=lambda: f"{unit} has {cgroupfs.pids(str(unit))}")


class TestUnit:
    @pytest.mark.parametrize("uid", [0, NOBODY], ids=["root", "nobody"])
    def test_with_delegation_a_stop_ends_everything(self, enter: Enter, uid: int) -> None:
        inside = enter(uid)
        tree, command = inside.tree(*ROLES)
        service = inside.unit(*REQUIRED, *command, properties=DELEGATED)
        ready(inside, tree)
        assert_held_by(inside, tree, f"/sys/fs/cgroup/system.slice/{UNIT}")

        inside.box.run("systemctl", "stop", UNIT)
        assert_nothing_left(inside, tree)
        service.wait()
        assert "Finished with result: success" in service.stdout
        assert "code=killed/status=TERM" in service.stdout
        assert inside.outcome()["verified"] is True

    def test_sigkill_of_supervise_leaves_nothing(self, enter: Enter) -> None:
        inside = enter(NOBODY)
        tree, command = inside.tree(*ROLES)
        service = inside.unit(*REQUIRED, *command, properties=DELEGATED)
        ready(inside, tree)

        inside.send(signal.SIGKILL, "supervisor")
        service.wait()
        assert "Finished with result: signal" in service.stdout
        assert_nothing_left(inside, tree)

    def test_without_delegation_it_says_so_and_goes_on(self, enter: Enter) -> None:
        inside = enter(NOBODY)
        tree, command = inside.tree(*ROLES)
        service = inside.unit(*command, properties=("KillMode=mixed",))
        ready(inside, tree)
        assert inside.record()["tiers"] == ["subreaper"]
        (note,) = [line for line in service.stderr.splitlines() if "cgroup" in line]
        assert note.endswith(f"no cgroup tier: /sys/fs/cgroup/system.slice/{UNIT} is not delegated to us")

        inside.box.run("systemctl", "stop", UNIT)
        assert tree.left(inside.record()["id"]) == []
        service.wait()
        assert "Finished with result: success" in service.stdout

    def test_without_delegation_nothing_is_launched_if_it_is_required(self, enter: Enter) -> None:
        inside = enter(NOBODY)
        tree, command = inside.tree("plain")
        service = inside.unit(*REQUIRED, *command, properties=("KillMode=mixed",))
        assert service.wait() == 125
        (line,) = service.stderr.splitlines()
        assert "--require-tier cgroup: " in line
        assert "is not delegated to us; try --scope, or Delegate=yes in the unit" in line
        assert not tree.path.exists()
        assert not list(inside.state.glob("supervise/X/attempts/*"))


class TestScope:
    def test_of_an_ordinary_user_holds_what_nobody_contains_any_more(self, enter: Enter) -> None:
        inside = enter(USER, RUNTIME)
        tree = self._abandoned(inside, "ignore-term")
        cleaned = inside.inside("clean")
        assert cleaned.wait() == 0, cleaned.stderr
        assert_nothing_left(inside, tree)

    def test_the_next_start_ends_what_the_last_one_left(self, enter: Enter) -> None:
        inside = enter(USER, RUNTIME)
        first = self._abandoned(inside)
        abandoned = inside.box.outside(os.path.dirname(inside.leaf))
        second, command = inside.tree("--after", str(first.path), "plain")
        again = inside.inside("--scope", *REQUIRED, *command)
        ready(inside, second)
        assert not second.overlapped
        assert first.left() == []
        wait_until(lambda: not abandoned.exists(), failure=lambda: f"{abandoned} is still there")
        assert inside.in_leaf() == {member.pid for member in second.members.values()}

        inside.send(signal.SIGTERM, "supervisor")
        assert again.wait() == -signal.SIGTERM
        assert_nothing_left(inside, first, second)

    def test_of_root(self, enter: Enter) -> None:
        inside = enter(0)
        tree, command = inside.tree("plain", *UNKNOWN)
        launched = inside.inside("--scope", *REQUIRED, *command)
        ready(inside, tree)
        scope = os.path.dirname(inside.leaf)
        assert scope.startswith("/sys/fs/cgroup/system.slice/run-")
        assert scope.endswith(".scope")
        assert_held_by(inside, tree, scope)

        inside.send(signal.SIGTERM, "supervisor")
        assert launched.wait() == -signal.SIGTERM
        assert_nothing_left(inside, tree)

    def test_goes_on_as_what_it_was_started_as(self, enter: Enter) -> None:
        inside = enter(0)
        (inside.tmp / "json.py").write_text("raise SystemExit('a file of the working directory was imported')")
        tree, command = inside.tree("plain")
        safe = ("env", f"--chdir={inside.tmp}", inside.python, "-P")
        launched = inside.inside("--scope", *REQUIRED, *command, python=safe)
        ready(inside, tree)

        inside.send(signal.SIGTERM, "supervisor")
        assert launched.wait() == -signal.SIGTERM
        assert_nothing_left(inside, tree)

    def test_without_a_manager_of_the_user_it_says_so_and_goes_on(self, enter: Enter) -> None:
        inside = enter(NOBODY)
        tree, command = inside.tree("plain")
        launched = inside.inside("--scope", *command)
        ready(inside, tree)
        assert _notes(launched, "no scope: ") == 1
        assert inside.record()["tiers"] == ["subreaper"]

        inside.send(signal.SIGTERM, "supervisor")
        assert launched.wait() == -signal.SIGTERM
        assert tree.left(inside.record()["id"]) == []

    @pytest.mark.skipif(os.path.exists("/run/systemd/system"), reason="this machine runs systemd")
    def test_without_systemd_it_says_so_and_goes_on(self, supervise: Supervise) -> None:
        family = supervise.family()
        launched = supervise.start("--scope", "--name", "X", *supervise.hydra("plain", pids=family.path))
        family.wait_ready(failure=supervise.said)
        assert _notes(launched, "no scope: ") == 1

        launched.send(signal.SIGTERM)
        assert launched.wait() == -signal.SIGTERM
        assert family.survivors == []

    @staticmethod
    def _abandoned(inside: Inside, *roles: str) -> Tree:
        """A tree in a scope whose supervise, guard and keeper were killed at once; it goes on as if nothing was."""
        tree, command = inside.tree("plain", *UNKNOWN, *roles)
        launched = inside.inside("--scope", *REQUIRED, *command)
        ready(inside, tree)
        scope = os.path.dirname(inside.leaf)
        manager = f"/sys/fs/cgroup/user.slice/user-{USER}.slice/user@{USER}.service/"
        assert scope.startswith(manager)
        assert scope.endswith(".scope")
        assert_held_by(inside, tree, scope)

        with frozen(inside.box.outside(scope)):
            inside.send(signal.SIGKILL, "supervisor", "guard", "keeper")
        assert launched.wait() == -signal.SIGKILL
        everybody = {member.pid for member in tree.members.values()}
        wait_until(lambda: cgroupfs.pids(str(inside.box.outside(scope))) == everybody, DEADLINE_S)
        assert tree.living == set(tree.members)
        return tree


def _notes(launched: Launched, text: str) -> int:
    return sum(text in line for line in launched.stderr.splitlines())
