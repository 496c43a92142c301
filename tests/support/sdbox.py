"""A throw-away systemd as PID 1: over an overlay of `/`, in namespaces and a cgroup of its own. Takes root.

What it writes goes into a tmpfs, /proc/sys and /sys are read-only, its network is its own loopback: the machine around
it does not notice, but for the directories that are shared with it on purpose.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from supervise.host import cgroupfs, procfs, signals
from tests.support.waiting import DEADLINE_S, describe, wait_until

USER = 4242
"""An ordinary user inside, with a service manager."""
RUNTIME = f"/run/user/{USER}"
"""Where that is found."""

_INIT = shutil.which("systemd", path="/usr/lib/systemd:/lib/systemd")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NEEDED = ("unshare", "nsenter", "setpriv", "mount", "pivot_root", "systemctl", "systemd-run", "dbus-daemon")
_NAMESPACES = ("--pid", "--mount", "--uts", "--ipc", "--net")
# The first three would tidy up /tmp, and with it directories that are not the box's own. The others are of no use here.
_MASKED = (
    "systemd-tmpfiles-setup.service",
    "systemd-tmpfiles-setup-dev.service",
    "systemd-tmpfiles-clean.timer",
    "systemd-journald-audit.socket",
    "systemd-journal-flush.service",
    "systemd-remount-fs.service",
    "systemd-update-utmp.service",
    "ldconfig.service",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "timers.target",
)
# What of the kernel has no namespace is not the box's to change.
_DENIED = "-sys_module,-sys_time,-sys_boot,-syslog,-audit_control,-audit_read"

# Only the process that is to be PID 1 moves: unshare, its parent, has no pid in there and would read as 0, which
# systemctl takes for an error.
_ENTER = """
echo 0 >"$1/cgroup.procs"
inside=$2
shift 2
exec unshare --cgroup -- sh -euc "$inside" sh "$@"
"""
_BOOT = r"""
work=$1 init=$2 path=$3 masked=$4 denied=$5
shift 5
root=$work/root
mount -t tmpfs -o mode=755 tmpfs "$work"
mkdir "$work/upper" "$work/scratch" "$root"
mount -t overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/scratch" overlay "$root"
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null zero full random urandom tty; do
    touch "$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"
for shared in "$@"; do
    mkdir -p "$root$shared"
    mount --bind "$shared" "$root$shared"
done
mkdir -p "$root/run/systemd/system"
for unit in $masked; do
    ln -s /dev/null "$root/run/systemd/system/$unit"
done
cd "$root"
mkdir .outside
pivot_root . .outside
umount -l /.outside
rmdir /.outside
exec env -i container=sdbox PATH="$path" setpriv --bounding-set="$denied" \
    "$init" --system --unit=basic.target --show-status=0 --log-level=warning
"""
_VISIT = 'echo 0 >/sys/fs/cgroup/visitors/cgroup.procs; exec "$@"'


def refusal() -> str | None:
    """Why there can be no box here, None if there can."""
    if os.geteuid() != 0:
        return "needs uid 0"
    if missing := [name for name in _NEEDED if shutil.which(name) is None] or ([] if _INIT else ["systemd"]):
        return f"not installed: {', '.join(missing)}"
    try:
        if not os.access(cgroupfs.own(), os.W_OK):
            return "cgroup v2 is not writable"
    except cgroupfs.NoCgroupError as error:
        return str(error)
    trial = ["unshare", *_NAMESPACES, "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    tried = subprocess.run(trial, capture_output=True, text=True, timeout=DEADLINE_S)
    return tried.stderr.strip() or None if tried.returncode else None


class Box:
    """One systemd. A context manager: it is up inside, and nothing of it is left afterwards.

    Args:
        shared: directories of this machine that are to be the same inside; /tmp, /run and /dev are new there otherwise.

    Attributes:
        init: its PID 1, as we see it.
        cgroup: the root of its cgroups, as we see it.
    """

    def __init__(self, shared: Iterable[str | Path]) -> None:
        self.work = Path(tempfile.mkdtemp(prefix="sdbox-"))
        self.said = self.work.with_suffix(".log")
        self.cgroup = Path(cgroupfs.own()) / self.work.name
        self.cgroup.mkdir()
        inside = [str(self.work), str(_INIT), _PATH, " ".join(_MASKED), _DENIED, *map(str, shared)]
        # Should we be killed there is nobody to stop it: unshare then goes with us, and PID 1 with unshare.
        bound = ["setpriv", "--pdeathsig", "KILL", "--"]
        namespaces = ["unshare", *_NAMESPACES, "--fork", "--kill-child", "--propagation", "private", "--"]
        with self.said.open("wb") as said:
            self._unshare = subprocess.Popen(
                [*bound, *namespaces, "sh", "-euc", _ENTER, "sh", str(self.cgroup), _BOOT, *inside],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def __enter__(self) -> Self:
        try:
            self._wait_booted()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def run(
        self, *argv: object, timeout: float = DEADLINE_S, user: int | None = None, env: Mapping[str, str] | None = None
    ) -> str:
        """Run a command inside, outside of any unit.

        Args:
            argv: the command.
            timeout: seconds.
            user: uid and gid to run it as; None for root.
            env: its environment besides PATH.

        Returns:
            What it has printed.

        Raises:
            AssertionError: it did not end with 0.
        """
        done = subprocess.run(
            self._visit(argv, user),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={"PATH": _PATH, **(env or {})},
        )
        assert done.returncode == 0, f"{argv} in the box: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(
        self,
        *argv: object,
        stdout: IO[bytes],
        stderr: IO[bytes],
        user: int | None = None,
        env: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """The same without waiting: the process that is returned passes the exit status on, but no signals."""
        return subprocess.Popen(
            self._visit(argv, user),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={"PATH": _PATH, **(env or {})},
        )

    def unit(self, name: str, text: str) -> None:
        """Make a unit known to it."""
        Path(f"/proc/{self.init}/root/run/systemd/system/{name}").write_text(text)
        self.run("systemctl", "daemon-reload")

    def outside(self, path: str) -> Path:
        """Where one of its cgroups is for us; `path` as it is named inside, below /sys/fs/cgroup."""
        return self.cgroup / os.path.relpath(path, "/sys/fs/cgroup")

    def add_user(self) -> None:
        """Have `USER`, with a service manager; whatever that starts for its first client is there from then on."""
        self.run("useradd", "--create-home", "--uid", USER, "supervise-trial")
        self.run("systemctl", "start", "dbus.service", "systemd-logind.service", f"user@{USER}.service")
        first = ("systemd-run", "--user", "--scope", "--collect", "true")
        self.run(*first, user=USER, env={"XDG_RUNTIME_DIR": RUNTIME})

    def clear(self, *services: str) -> None:
        """SIGKILL these, what was started from here and all scopes: for the tear-down of a test that failed."""
        found = [*self.cgroup.glob("**/*.scope"), *(self.cgroup / "system.slice" / name for name in services)]
        for cgroup in (self.cgroup / "visitors", *found):
            if cgroup.name != "init.scope" and cgroupfs.populated(str(cgroup)):
                cgroupfs.kill(str(cgroup))

    def stop(self) -> None:
        """End it, and make sure that no process, no mount and no cgroup of it is left."""
        directory = str(self.cgroup)
        cgroupfs.kill(directory)
        self._unshare.kill()
        self._unshare.wait(DEADLINE_S)
        wait_until(lambda: not cgroupfs.populated(directory), failure=lambda: self._left(cgroupfs.pids(directory)))
        wait_until(lambda: cgroupfs.remove(directory), failure=lambda: f"{directory} is still there")
        assert str(self.work) not in Path("/proc/self/mountinfo").read_text()
        self.work.rmdir()  # refused while anything is mounted on it
        self.said.unlink()

    def _wait_booted(self) -> None:
        self.init = wait_until(self._child, failure=self.said.read_text)
        private = Path(f"/proc/{self.init}/root/run/systemd/private")
        wait_until(lambda: self._ended() or private.exists(), failure=self.said.read_text)
        assert not self._ended(), self.said.read_text()
        (self.cgroup / "visitors").mkdir()
        self.run("systemctl", "start", "basic.target")

    def _child(self) -> int | None:
        if self._ended():
            raise AssertionError(self.said.read_text())
        processes = procfs.scan(cmdline=False, environ=False).values()
        return next((process.pid for process in processes if process.ppid == self._unshare.pid), None)

    def _ended(self) -> bool:
        return self._unshare.poll() is not None

    def _visit(self, argv: Iterable[object], user: int | None) -> list[str]:
        become = [] if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        enter = ["nsenter", "-t", str(self.init), "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w", "--"]
        return [*enter, "sh", "-euc", _VISIT, "sh", *become, *map(str, argv)]

    @staticmethod
    def _left(pids: Iterable[int]) -> list[str]:
        found = filter(None, map(procfs.identify, pids))
        return [describe(target) for target in found if signals.alive(target)]
