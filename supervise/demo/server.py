#!/usr/bin/env python3
"""A server that to a supervisor looks like `vllm serve`, ready in a fraction of a second, without a GPU or a model.

Run it as `python -m supervise.demo.server` or as a file; it needs nothing but the standard library. Its log lines,
process names, phases, exit codes and bad habits are those of a real vLLM 0.32 (VLLM_REAL.md sections 2 to 8).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

if not __package__:
    # Run as a file: the package is found from here, and our own directory is no place to import from.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from supervise.demo.family import ESCAPES
from supervise.demo.standin import FORWARD, PHASES, Server


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; words that are no options (`serve MODEL`) are accepted and not looked at.

    Args:
        arguments: without the program's name; None for the process's own.

    Raises:
        SystemExit: with 2, after a line in the words of vLLM, for what it does not understand.
    """
    parser = argparse.ArgumentParser(prog="vllm", description="A stand-in for `vllm serve`.")
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to serve on")
    add("--port", type=int, default=8000, help="port to serve on")
    add("--uds", metavar="PATH", help="Unix socket to serve on instead")
    add("--ssl-certfile", metavar="PATH", help="certificate to serve with")
    add("--ssl-keyfile", metavar="PATH", help="its key")
    add("--api-key", metavar="KEY", help="what requests below /v1 must bring along")
    add("--api-server-count", type=int, default=1, metavar="N", help="number of processes that serve")
    add("--served-name", "--served-model-name", help="name of the model it claims to serve")
    add("--workers", "--tensor-parallel-size", type=int, default=1, help="number of worker processes")
    add("--max-num-seqs", type=int, metavar="N", help="requests at once; it is told in the log, and means nothing")
    add("--max-model-len", type=int, default=2048, metavar="N", help="tokens of a request; more than 65536 do not fit")
    add("--model-code", metavar="MODULE", help="have its load_weights(names) load the weights, or fail to")
    add("--load-s", type=float, default=0.5, help="seconds from start to ready")
    add("--shm", type=int, default=0, metavar="BYTES", help="size of a shared memory segment to use")
    add("--ipc", type=int, default=0, metavar="N", help="number of sockets to make in $VLLM_RPC_BASE_PATH or $TMPDIR")
    add("--shutdown-timeout", type=float, default=0.0, metavar="S", help="let running requests finish for so long")
    add("--request-s", type=float, default=0.0, help="seconds that a completion takes")
    add("--answer", metavar="TEXT", help="text of every completion; default: its prompt")
    add("--sleep-mode", action="store_true", help="have /sleep, /wake_up and /is_sleeping")
    add("--say", action="append", default=[], metavar="TEXT", help="print this line early; may be repeated")
    _add_misbehaviour(parser)
    add("--pids-fd", type=int, metavar="FD", help="write `role pid` lines here, and `ready`")
    add("--pids-file", metavar="PATH", help="the same, appended to a file")
    options = parser.parse_args(arguments)
    # As vLLM does: the model as given, unless a name is.
    model = next(iter(options.words[1:]), "stand-in") if options.words[:1] == ["serve"] else "stand-in"
    options.served_name = options.served_name or model
    return options


def _add_misbehaviour(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("misbehaviour").add_argument
    add("--crash-at", choices=PHASES, metavar="PHASE", help=f"fail in one of {', '.join(PHASES)}")
    add("--crash-text", default="RuntimeError: boom", metavar="TEXT", help="last line of the traceback, or all of it")
    add("--exit-code", type=int, help="exit status of a crash, or of an exit after --exit-after")
    add("--exit-after", type=float, metavar="S", help="end this many seconds after having become ready")
    add("--crash-after-requests", type=int, metavar="N", help="the engine fails once it has answered so many")
    add(
        "--hang-at",
        choices=(*PHASES, FORWARD),
        metavar="PHASE",
        help=f"get stuck there; at `ready`, only completions do, at `{FORWARD}`, the engine does in the first request",
    )
    add("--linger", action="store_true", help="do not exit after a crash")
    add("--ignore-term", action="store_true", help="the leader ignores SIGTERM")
    add("--lose-first-term", action="store_true", help="one SIGTERM during loading has no effect")
    add("--ready-without-listen", action="store_true", help="say that it is up, and serve nothing")
    add("--escape", type=_roles, default=[], metavar="ROLE,…", help=f"have such children: {', '.join(ESCAPES)}")


def _roles(text: str) -> list[str]:
    roles = text.split(",") if text else []
    if unknown := set(roles).difference(ESCAPES):
        raise argparse.ArgumentTypeError(f"no such role: {', '.join(sorted(unknown))}")
    return roles


def main() -> None:
    """Entry point. Leaves without tidying up, so that nothing but the server's own habits decides what it leaves."""
    status = Server(parse()).run()
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
