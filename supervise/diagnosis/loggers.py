"""How loggers begin a line: the engines' own, the libraries' in them, and those of programs that relay an engine."""

from __future__ import annotations

import re

from supervise.diagnosis.heads import CLOCK, LEVELS, MOMENT, WIDE_LEVELS, Kind, Rule

# A place in a source file, as `%(filename)s:%(lineno)d` writes it.
_PLACE = r"[\w./<>-]+:\d+"
# A logger's name, told from an exception's: all its parts begin small, and there are several.
_NAME = r"[a-z_][\w-]*(?:(?:\.|::)[a-z_][\w-]*)+"
_GLOG = r"(?P<level>[DIWEFV])(?P<time>\d{4} \d\d:\d\d:\d+(?:\.\d+)?)"

VLLM = re.compile(
    rf"(?P<level>{LEVELS}) (?P<time>(?:\d{{4}}-)?\d\d-\d\d {CLOCK}) \[?(?P<source>{_PLACE})\] ?",
)
"""`ERROR 11-30 05:27:01 [core.py:1510] text`; before 0.7 the bracket before the file name was missing."""

SGLANG = re.compile(
    r"\[(?P<time>(?:(?:\d{4}-)?\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?P<process>(?: [A-Z][A-Z_]*\d+)*)\] ?",
)
"""`[2026-11-30 05:27:01 DP0 TP1] text`: no level, before 0.4 no date, and from its diffusion no year."""

UVICORN = re.compile(
    rf"(?P<level>{LEVELS}|TRACE):(?:(?<=INFO:)     |(?<=TRACE:)    |(?<=DEBUG:)    |(?<=ERROR:)    |(?<=WARNING:)  | )",
)
"""uvicorn pads to ten columns. Fewer blanks are another's, who writes one: more of them belong to the text."""

LEVEL_RULES = (
    Rule(Kind.END, VLLM),
    Rule(Kind.END, UVICORN),
    # vLLM's without its moment: some formats have none, and some tickets.
    Rule(Kind.END, re.compile(rf"(?P<level>{LEVELS}) \[(?P<source>[\w./<>-]+\.py:\d+)\] ?"), ".py:"),
    # `logging.basicConfig` without a format.
    Rule(Kind.RELAY, re.compile(rf"(?P<level>{LEVELS}):(?P<source>[A-Za-z_][\w.-]*):")),
    # glog, absl and torch: month and day without a mark, the thread, and a file.
    Rule(Kind.END, re.compile(rf"{_GLOG} +(?:\d+ +)?(?P<source>{_PLACE})\] ?")),
    # Django's order. The name is followed by a colon or stands in brackets.
    Rule(
        Kind.RELAY,
        re.compile(
            rf"(?P<level>{WIDE_LEVELS}) +(?P<time>{MOMENT})"
            rf"(?: (?P<source>{_PLACE}|{_NAME}):?(?= )| \[(?P<place>[\w.:-]+)\])? ?"
        ),
    ),
)
"""Those that begin with a level."""

SGLANG_RULES = (
    Rule(Kind.END, UVICORN),
    # SGLang before its own logger is set up.
    Rule(Kind.END, re.compile(rf"(?P<level>{LEVELS}) (?P<source>{_PLACE}): ")),
)
"""Those that may follow SGLang's prefix: it puts it before uvicorn's lines too."""

BRACKET_RULES = (
    # gunicorn (`[moment +0000] [pid] [INFO] text`) and DeepSpeed (`[moment] [INFO] [file.py:12:function] text`).
    Rule(
        Kind.RELAY,
        re.compile(
            rf"\[(?P<time>{MOMENT})\] (?:\[\d+\] )?\[(?P<level>{WIDE_LEVELS})\] (?:\[(?P<source>{_PLACE}(?::\w+)?)\] )?"
        ),
    ),
    # torch before 2.3: `[moment] torch.distributed.run: [WARNING] text`.
    Rule(
        Kind.END,
        re.compile(rf"\[(?P<time>{MOMENT})\] (?P<source>[\w.]+): \[(?P<level>{WIDE_LEVELS})\] ?"),
    ),
    Rule(Kind.HEAD, SGLANG),
    # torch's C++: `[E1130 05:00:00.123456789 ProcessGroupNCCL.cpp:616] text`.
    Rule(Kind.END, re.compile(rf"\[{_GLOG} (?:\d+ )?(?P<source>{_PLACE})\] ?")),
    # TensorRT-LLM, from C++ and from Python.
    Rule(Kind.END, re.compile(rf"\[(?P<source>TensorRT-LLM)\]\[(?P<level>{WIDE_LEVELS})\] ?"), "TensorRT-LLM"),
    Rule(
        Kind.END,
        re.compile(
            rf"\[(?P<time>\d\d/\d\d/\d{{4}}-{CLOCK})\] \[(?P<source>TRT(?:-LLM)?)\] "
            r"(?:\[RANK (?P<rank>\d{1,6})\] )?\[(?P<level>[DVIWEF])\] ?"
        ),
        "] [TRT",
    ),
    Rule(Kind.RELAY, re.compile(rf"\[(?P<level>{WIDE_LEVELS})\]:? ")),
)
"""Those that begin with a bracket."""

MOMENT_RULES = (
    # XLA and TensorFlow: `moment: E external/local_xla/a.cc:477] text`.
    Rule(Kind.END, re.compile(rf"(?P<time>{MOMENT}): (?P<level>[IWEF]) (?P<source>{_PLACE})\] ?")),
    # logging's usual format, and LMDeploy's, which adds the file: `moment - name - LEVEL - file.py:12 - text`.
    Rule(
        Kind.RELAY,
        re.compile(
            rf"(?P<time>{MOMENT}) - (?P<source>[\w.:/@-]+(?: \[?\d+\]?)?) - (?P<level>{WIDE_LEVELS}) - "
            rf"(?:\[?{_PLACE}\]? - )?"
        ),
    ),
    Rule(
        Kind.RELAY,
        re.compile(rf"(?P<time>{MOMENT}) - (?P<level>{WIDE_LEVELS}) - (?:(?P<source>{_PLACE}|[\w.]+) - )?"),
    ),
    # loguru: `moment | ERROR    | module:function:12 - text`.
    Rule(
        Kind.RELAY,
        re.compile(
            rf"(?P<time>{MOMENT}) \| (?P<level>{WIDE_LEVELS}) *\| "
            r"(?:(?P<source>[\w.<>]+:[\w.<>]+:\d+) - |(?P<place>std(?:err|out)) \| )?"
        ),
    ),
    # Ray (`moment\tINFO worker.py:12 -- text`), tracing in Rust (`moment  INFO module::path: text`), and the like.
    Rule(
        Kind.RELAY,
        re.compile(
            rf"(?P<time>{MOMENT}|{CLOCK})[ \t]+(?!(?:{LEVELS}) \d\d-\d\d \d\d:)"
            rf"(?:\[?\d+\]?[ \t]+)?\[?(?P<level>{WIDE_LEVELS})"
            r"(?:\]?:? ?\t|\]: |: (?! )|\] |(?<= INFO) {5}|(?<=DEBUG) {4}|(?<=ERROR) {4}|(?<=WARNING) {2}| |$)"
            rf"(?:(?P<source>{_PLACE}|{_NAME})(?::| --) |\[[\w.:-]+\] )?"
        ),
    ),
    # llama.cpp with `--log-prefix` and `--log-timestamps`: minutes, seconds, milliseconds, microseconds.
    Rule(Kind.END, re.compile(r"(?P<time>\d+\.\d\d\.\d{3}\.\d{3}) (?P<level>[DIWE]) ")),
)
"""Those that begin with a moment."""

WORD_RULES = (
    # NCCL's own text begins at its name: nobody else's does.
    Rule(
        Kind.END,
        re.compile(
            r"[\w.-]+:\d+:\d+ \[(?:(?P<rank>\d{1,6})|-\d+)\] (?=(?:\S+:\d+ )?(?P<source>NCCL) (?P<level>[A-Z]+))"
        ),
        " NCCL ",
    ),
)
"""Those that begin with a word."""
