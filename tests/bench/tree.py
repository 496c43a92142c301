"""A process tree to be ended: `python -IS tree.py TELL SIZE PERCENT`, of which `PERCENT` per cent get away.

One leader, below it heads of ten, below each head nine leaves; the leader is the first head. Whoever gets away is a
leaf that has gone through setsid and a double fork. Every process says `number pid` in TELL once it is what it is to
be, the leader says `ready` last. SIGTERM ends each of them at once, so what is measured is who is reached, and when.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

_TEN = 10


def main() -> NoReturn:
    tell, size, percent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    for signum in (signal.SIGTERM, signal.SIGINT):  # whatever the tool has made of them
        signal.signal(signum, signal.SIG_DFL)
    reader, held = os.pipe()
    for head in range(_TEN, size, _TEN):
        if os.fork() == 0:
            os.close(reader)
            be_head(head, tell, size, percent, held)
    grow_leaves(0, tell, size, percent, held)
    say(tell, f"0 {os.getpid()}")
    os.close(held)
    os.read(reader, 1)  # ends when nobody holds the other end any more, that is, when all have told
    say(tell, "ready")
    rest()


def be_head(number: int, tell: str, size: int, percent: int, held: int) -> NoReturn:
    grow_leaves(number, tell, size, percent, held)
    told(number, tell, held)


def grow_leaves(head: int, tell: str, size: int, percent: int, held: int) -> None:
    """Fork the nine below a head; of every ten the last ones get away."""
    for number in range(head + 1, min(head + _TEN, size)):
        gets_away = number % _TEN >= _TEN - percent // _TEN
        pid = os.fork()
        if pid == 0:
            if gets_away:
                get_away()
            told(number, tell, held)
        if gets_away:
            os.waitpid(pid, 0)  # the one in between


def get_away() -> None:
    os.setsid()
    if os.fork():
        os._exit(0)


def told(number: int, tell: str, held: int) -> NoReturn:
    say(tell, f"{number} {os.getpid()}")
    os.close(held)
    rest()


def say(tell: str, line: str) -> None:
    fd = os.open(tell, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def rest() -> NoReturn:
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
