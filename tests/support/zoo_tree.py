"""A multiprocessing tree as engines have it: a segment, a semaphore, a worker, and Python's resource tracker.

Run as a program; it says who and what it has made on standard output, one JSON object, and stays.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory


def worker(name: str, semaphore: object, ready: Connection) -> None:
    segment = SharedMemory(name)
    ready.send(None)
    signal.pause()
    segment.close()


def main() -> None:
    # With `spawn`, as engines use it, a semaphore keeps its name for as long as it lives.
    context = multiprocessing.get_context("spawn")
    segment = SharedMemory(create=True, size=4096)
    semaphore = context.Semaphore()
    ready, told = context.Pipe(duplex=False)
    child = context.Process(target=worker, args=(segment.name, semaphore, told))
    child.start()
    assert ready.poll(20)
    tracker = resource_tracker._resource_tracker._pid  # type: ignore[attr-defined]
    name = f"sem.{semaphore._semlock.name.lstrip('/')}"  # type: ignore[attr-defined]
    said = {"pids": [os.getpid(), child.pid, tracker], "segment": segment.name, "semaphore": name}
    print(json.dumps(said), flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
