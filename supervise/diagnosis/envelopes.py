"""What may wrap every line of a log: containers, Kubernetes, the journal, launchers of ranks, quotes in a ticket."""

from __future__ import annotations

import re

from supervise.diagnosis.heads import CLOCK, LEVELS, MOMENT, OUTCRY, Kind, Rule

# A name for which Kubernetes drew the letters: it uses neither vowels nor 0, 1 and 3, so that no word comes out.
_DRAWN = r"[bcdfghjklmnpqrstvwxz2456789]"
# What a log line of vLLM, SGLang or Python looks like where nothing stands before it.
_CERTAIN = (
    rf"\([\w.:-]+(?: [\w=]+)? pid=\d+[,)]|(?:{LEVELS}) \d\d-\d\d \d\d:|\[\d{{4}}-\d\d-\d\d \d\d:|"
    rf"\[rank\d{{1,6}}\]:|  File \"|{OUTCRY}"
)
# What native code says where nothing stands before it.
_NATIVE = (
    r"Fatal Python error: |Memory access fault by GPU|terminate called |Illegal instruction|Segmentation fault|"
    r"[\w./-]+\.(?:cu|cuh|cpp|cc|h):\d+: "
)
_ZONED = rf"\d{{4}}-\d\d-\d\dT{CLOCK}(?:Z|[+-]\d\d:?\d\d)"

PROCESS = re.compile(
    r"\((?P<process>[\w.:<>-]{1,200}(?:\(\w*\))?)(?P<ranks>(?: (?:rank=|[A-Z]+)\d+)*) pid=(?P<pid>\d{1,10})"
    r"(?:, ip=[\w.:]+)?\) ?",
)
"""vLLM wraps the standard streams of its processes: every line, logged or printed, names its process. Ray does too."""

OWN = re.compile(
    rf"\([\w.:<>-]+(?: [\w=]+)* pid=\d+[,)]|\((?:raylet|autoscaler)[,) ]|\[rank\d+\]: ?|"
    rf"(?:{LEVELS}) \d\d-\d\d \d\d:\d\d:"
)
"""vLLM's prefix, Ray's or torch's after what looks like SGLang's: somebody else wrote the time before every line."""

PARENTHESIS_RULES = (
    # SkyPilot: the task, not a process of the server.
    Rule(Kind.ENVELOPE, re.compile(r"\([\w.-]+,(?: rank=\d+,)? pid=\d{1,10}(?:, ip=[\w.:]+)?\) ?"), ", pid="),
    Rule(Kind.ENVELOPE, PROCESS, " pid="),
    Rule(Kind.ENVELOPE, re.compile(r"\(pid=\d{1,10}(?:, ip=[\w.:]+)?\) ?"), "(pid="),
    Rule(
        Kind.ENVELOPE,
        re.compile(r"\((?P<process>raylet|autoscaler|gcs_server)(?:, ip=[\w.:]+| \+\w+)*\) ?"),
    ),
)
"""Those that begin with a parenthesis. A `pid` without a name says nothing that lines could be told apart by."""

BRACKET_ENVELOPES = (
    # vLLM's prefix as plugins and forks draw it: `[EngineCore_DP0][pid=77] ERROR …`.
    Rule(Kind.ENVELOPE, re.compile(r"\[(?P<process>[A-Za-z_][\w.:-]{0,200})\]\[pid=(?P<pid>\d{1,10})\] ?"), "][pid="),
    # torch, from its exception hook (`[rank0]: text`) and from C++ (`[rank0]:[E1130 … a.cpp:6] text`).
    Rule(Kind.ENVELOPE, re.compile(r"\[(?P<process>rank(?P<rank>\d{1,6}))\]: ?"), "[rank"),
    # torchrun --tee: role and local rank, without a blank.
    Rule(Kind.ENVELOPE, re.compile(r"\[(?P<process>(?:default|worker|trainer)(?P<rank>\d{1,6}))\]:")),
    # SGLang before 0.3.
    Rule(Kind.ENVELOPE, re.compile(r"\[(?P<process>gpu(?:_id)?=(?P<rank>\d{1,6}))\] ")),
    # kubectl logs --prefix
    Rule(Kind.ENVELOPE, re.compile(r"\[pod/[\w.-]+/[\w.-]+\](?: |$)"), "[pod/"),
    # mpirun --tag-output
    Rule(Kind.ENVELOPE, re.compile(r"\[\d+,(?P<rank>\d{1,6})\]<std(?:out|err)>:")),
    # dmesg, with seconds since boot or with -T.
    Rule(Kind.ENVELOPE, re.compile(r"\[ *(?P<time>\d+\.\d{6})\] "), process="kernel"),
    Rule(
        Kind.ENVELOPE,
        re.compile(rf"\[(?P<time>[A-Z][a-z]{{2}} [A-Z][a-z]{{2}} [ \d]\d {CLOCK} \d{{4}})\] "),
        process="kernel",
    ),
)
"""Those that begin with a bracket."""

RELAY_ENVELOPES = (
    # GPUStack: the moment, and the program whose output it passes on.
    Rule(Kind.ENVELOPE, re.compile(rf"\[(?P<time>{MOMENT})\] \[/[\w./-]+\]:(?: |$)"), "] [/"),
    # Launchers that pass on what a child prints: `[06:51:09]    [vllm] (EngineCore pid=7) …`.
    Rule(Kind.ENVELOPE, re.compile(rf"\[(?P<time>{MOMENT}|{CLOCK})\] +\[[\w.-]+\] (?={_CERTAIN})"), "] "),
)
"""Those that begin with a moment in brackets, as SGLang's own prefix does: they are tried before it."""

MOMENT_ENVELOPES = (
    # CRI: what a kubelet finds under /var/log/pods.
    Rule(Kind.ENVELOPE, re.compile(rf"(?P<time>{_ZONED}) (?:stdout|stderr) [FP](?: |$)"), " std"),
    # The journal with ISO dates, and rsyslog. Without a number only the two that write about a death.
    Rule(
        Kind.ENVELOPE,
        re.compile(rf"(?P<time>{_ZONED}) [\w.-]+ (?:(?P<process>systemd|kernel)(?:\[\d+\])?|[\w./@-]+\[\d+\]):(?: |$)"),
    ),
)
"""Those that begin with a moment and say more than it."""

NUMBERED = Rule(Kind.ENVELOPE, re.compile(r" {0,6}\d{1,7}\t"), "\t")
"""`cat -n`, and who copies from a pager that numbers lines."""

BARE_MOMENTS = (
    NUMBERED,
    # kubectl logs --timestamps, docker logs -t; then whoever else writes nothing but the time.
    Rule(Kind.ENVELOPE, re.compile(rf"(?P<time>{MOMENT}):?(?:[ \t]|$)")),
    # srun --label: a number and a colon begin many a line, so only before what is certain.
    Rule(Kind.ENVELOPE, re.compile(rf"(?P<rank>\d{{1,5}}): (?=  |(?:{LEVELS}): |{_CERTAIN}|{_NATIVE})"), ": "),
)
"""A moment or a number and nothing more, tried last."""

WORD_ENVELOPES = (
    # The journal, and syslog.
    Rule(
        Kind.ENVELOPE,
        re.compile(
            rf"(?P<time>(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ \d]\d {CLOCK}) [\w.-]+ "
            r"(?:(?P<process>systemd|kernel)(?:\[\d+\])?|[\w./@-]+(?:\[\d+\])):(?: |$)"
        ),
        ":",
    ),
    # gh run view --log: the job, the step, the moment.
    Rule(Kind.ENVELOPE, re.compile(rf"[^\t]{{1,100}}\t[^\t]{{1,100}}\t(?P<time>{_ZONED})(?: |$)"), "\t"),
    # docker compose aligns with blanks; a lone service whose name is as long as the column has but one.
    Rule(Kind.ENVELOPE, re.compile(r"[\w.-]+(?: {2,}|(?<=[_-]\d) |(?<=[_-]\d\d) )\|(?: |$)"), " |"),
    # unsloth passes on a server that it starts, line by line.
    Rule(Kind.ENVELOPE, re.compile(r"vLLM STD(?:OUT|ERR): ?"), "vLLM STD"),
    # stern: the pod of a deployment, then the container.
    Rule(
        Kind.ENVELOPE, re.compile(rf"[a-z0-9][a-z0-9-]*-{_DRAWN}{{6,10}}-{_DRAWN}{{5}} [a-z0-9][a-z0-9-]*(?: |$)"), "-"
    ),
    Rule(Kind.ENVELOPE, re.compile(rf"[a-z][a-z0-9-]*-\d{{1,4}} [a-z][a-z0-9-]* (?={_CERTAIN})"), "-"),
)
"""Those that begin with a word."""

QUOTES = (Rule(Kind.ENVELOPE, re.compile(r">(?: (?!>)|$)")),)
"""A ticket's quote."""

INSIDE = re.compile(
    r"[^'\"`{]{1,160}?"
    rf"(?=(?:\([\w.:-]+(?: [\w=]+)? pid=\d+\) )?(?:{LEVELS}) \d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? \[?[\w./<>-]+:\d+\]"
    r"|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?(?: [A-Z][A-Z_]*\d+)*\] )"
)
"""What stands before an engine's own prefix: an envelope that nobody foresaw, VLLM_LOGGING_PREFIX, the margin of a
block of code, or a progress bar that did not end its line. Quotes are somebody's words, so none may come before it."""
