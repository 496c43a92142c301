"""Log lines in the format of vLLM."""

from __future__ import annotations

import os
import time

_MODEL_CODE = 'File "vllm/model_executor/models/llama.py", line 412, in load_weights'
_TRACEBACK = "Traceback (most recent call last):"


class Log:
    """Prints lines as one of the server's processes would.

    Args:
        role: what vLLM calls the process in its prefix.
        pid: the process they are to come from.
    """

    def __init__(self, role: str = "APIServer", pid: int | None = None) -> None:
        self._prefix = f"({role} pid={os.getpid() if pid is None else pid}) "

    def info(self, source: str, text: str, level: str = "INFO") -> None:
        """One formatted line; `source` is the file and line that vLLM names."""
        self.raw(f"{self._prefix}{level} {time.strftime('%m-%d %H:%M:%S')} [{source}] {text}")

    def error(self, source: str, text: str) -> None:
        """Lines at level ERROR, each with the whole prefix, as vLLM prints tracebacks."""
        for line in text.splitlines():
            self.info(source, line, "ERROR")

    def prefixed(self, text: str) -> None:
        """Lines that bear only the name of the process."""
        for line in text.splitlines():
            self.raw(f"{self._prefix}{line}")

    def raw(self, text: str, end: str = "\n") -> None:
        """Text as it is."""
        print(text, end=end, flush=True)


def traceback_of(text: str) -> str:
    """The text as the last line of a traceback, unless it is one already."""
    return text if text.startswith(_TRACEBACK) else f"{_TRACEBACK}\n  {_MODEL_CODE}\n    ...\n{text}"


def no_room(length: int, room: int) -> str:
    """The traceback of a vLLM whose KV cache has room for `room` tokens, at 16 KiB each, and not for `length`."""
    needed, available = (tokens / 2**16 for tokens in (length, room))
    return (
        f'{_TRACEBACK}\n  File "vllm/v1/core/kv_cache_utils.py", line 676, in _check_enough_kv_cache_memory\n    ...\n'
        f"ValueError: To serve at least one request with the models's max seq len ({length}), ({needed:.2f} GiB KV "
        f"cache is needed, which is larger than the available KV cache memory ({available:.2f} GiB). Based on the "
        f"available memory, the estimated maximum model length is {room}. Try increasing `gpu_memory_utilization` or "
        "decreasing `max_model_len` when initializing the engine."
    )


def failed_start(cause: str, worker: Log, engine: Log, root: Log) -> None:
    """A worker that fails while loading: its traceback and the three echoes of it (VLLM_REAL.md section 7)."""
    worker.error("multiproc_executor.py:953", f"WorkerProc failed to start.\n{traceback_of(cause)}")
    wrapper = (
        "Exception: WorkerProc initialization failed due to an exception in a background process. "
        "See stack trace for root cause."
    )
    failed_engine(wrapper, engine, root)


def failed_engine(cause: str, engine: Log, root: Log) -> None:
    """An engine that fails while loading: its traceback and what follows from it."""
    engine.error("core.py:1510", f"EngineCore failed to start.\n{traceback_of(cause)}")
    root.raw(f"Process EngineCore:\n{traceback_of(cause)}")
    failed = "Failed core proc(s): {'EngineCore': 1}"
    root.prefixed(traceback_of(f"RuntimeError: Engine core initialization failed. See root cause above. {failed}"))


def failed_request(cause: str, worker: Log, engine: Log, root: Log) -> None:
    """A worker that fails in a request: the traceback and what follows from it (VLLM_REAL.md section 8)."""
    worker.error("multiproc_executor.py:1003", f"WorkerProc hit an exception.\n{traceback_of(cause)}")
    engine.error("core.py:1519", "EngineCore encountered a fatal error.")
    root.error("async_llm.py:785", "AsyncLLM output_handler failed.")
    died = "EngineCore encountered an issue. See stack trace (above) for the root cause."
    root.error("async_llm.py:785", traceback_of(f"vllm.v1.engine.exceptions.EngineDeadError: {died}"))
