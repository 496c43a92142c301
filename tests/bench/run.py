"""What `supervise` costs, beside its peers and a plain redirect: medians of interleaved runs, in tables.

    python tests/bench/run.py [--quick] [launch] [idle] [log] [stopped] [ends] [relaunch] [slate] [diagnosis]

honcho and supervisord come from $BENCH_PEERS, a virtual environment that has them; without it one is made for the run.
For `ends` there are more of them, looked for there and on PATH: tini, dumb-init, supervisord, circusd, honcho.
`diagnosis` reads a log of --log-mb megabytes, 1000 by default, made in $TMPDIR and removed.
`relaunch` and `slate` run in namespaces of their own, since pkill and fuser look at the whole host.
"""

from __future__ import annotations

import argparse
import math
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.bench import diagnosis, enders, measures, relaunch, slate  # noqa: E402 - a script finds its own directory only
from tests.bench.ends import End, Ends, Sampler, Shape  # noqa: E402
from tests.bench.managers import DIRECT, RECIPE, SUPERVISE, Manager, peers  # noqa: E402
from tests.support import zoo_alone  # noqa: E402

T = TypeVar("T")
PARTS = ("launch", "idle", "log", "stopped", "ends", "relaunch", "slate", "diagnosis")
_MIB = 2**20


def main() -> None:
    options = _parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started is ended all the same
    parts = options.parts or PARTS
    with tempfile.TemporaryDirectory(prefix="sv-bench-peers-") as directory:
        others = peers(Path(directory)) if set(parts) - {"ends", "relaunch", "slate", "diagnosis"} else []
        measured = {"launch": launch, "idle": idle, "log": log, "stopped": stopped, "ends": ends}
        measured |= {"relaunch": relaunched, "slate": slates}
        measured |= {"diagnosis": lambda _, quick: diagnosed(options.log_mb or (100 if quick else 1000), quick)}
        for part in parts:
            measured[part](others, options.quick)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What supervise costs, beside its peers.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"which of {', '.join(PARTS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="few and short samples")
    parser.add_argument("--log-mb", type=int, help="size of the log that is explained; 1000 by default, 100 if quick")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    return options


def launch(others: Sequence[Manager], quick: bool) -> None:
    managers = (DIRECT, SUPERVISE, *others)
    samplers: dict[str, Callable[[], float]] = {m.name: _bind(measures.launch_s, m) for m in managers}
    samplers[RECIPE.name] = _bind(measures.launch_s, RECIPE)
    imports, scan = f"python -c '{measures.IMPORTS}'", "one reading of /proc"
    samplers |= {imports: measures.imports_s, scan: measures.scan_s}
    interleave(samplers, 1)  # warms what is compiled and cached, of all of them
    seconds = interleave(samplers, 3 if quick else 9)
    found = {name: statistics.median(samples) for name, samples in seconds.items()}
    table("From exec of the manager to exec of the server", ["ms"], {n: [f"{s * 1e3:.0f}"] for n, s in found.items()})
    ours = found[SUPERVISE.name]
    aim("below the imports and one reading of /proc together", ours < found[imports] + found[scan])
    for other in others:
        aim(f"faster than {other.name}", ours < found[other.name])


def idle(others: Sequence[Manager], quick: bool) -> None:
    window_s, rounds = (5.0, 1) if quick else (15.0, 3)
    samples = interleave({m.name: _bind(measures.idle, m, window_s) for m in (SUPERVISE, *others)}, rounds)
    found = {
        name: measures.Idle(
            cpu=statistics.median(s.cpu for s in taken),
            wakeups=statistics.median(s.wakeups for s in taken),
            pss=statistics.median(s.pss for s in taken),
        )
        for name, taken in samples.items()
    }
    rows = {name: [f"{i.cpu:.3%}", f"{i.wakeups:.1f}", f"{i.pss:.1f}"] for name, i in found.items()}
    table("While the server idles, all processes of the manager", ["CPU", "wake-ups/s", "PSS MiB"], rows)
    ours = found[SUPERVISE.name]
    aim("at most 45 MiB", ours.pss <= 45)
    aim("at most 2 wake-ups/s", ours.wakeups <= 2)
    aim("at most 0.05 % CPU", ours.cpu <= 0.0005)


def log(others: Sequence[Manager], quick: bool) -> None:
    sizes = {"64 KiB writes": (256 * _MIB, 65536), "160 B writes": (48 * _MIB, 160)}
    managers = (DIRECT, SUPERVISE, *others)
    divisor = 4 if quick else 1
    rates = {column: _rates(managers, total // divisor, piece, quick) for column, (total, piece) in sizes.items()}
    rows = {m.name: [_rate(column[m.name], column[DIRECT.name]) for column in rates.values()] for m in managers}
    table("What the server can log, MB/s (of a plain redirect in the same round)", list(sizes), rows)
    for name, column in rates.items():
        aim(f"at least 0.98 of the redirect, {name}", _share(column[SUPERVISE.name], column[DIRECT.name]) >= 0.98)


def _rates(managers: Sequence[Manager], total: int, piece: int, quick: bool) -> dict[str, list[float]]:
    samplers = {manager.name: _bind(measures.log_rate, manager, total, piece) for manager in managers}
    return interleave(samplers, 3 if quick else 7)


def _rate(samples: Sequence[float], direct: Sequence[float]) -> str:
    return f"{statistics.median(samples):.0f} ({_share(samples, direct):.2f})"


def _share(samples: Sequence[float], direct: Sequence[float]) -> float:
    """Median over the rounds: within one, the machine does much the same to both."""
    return statistics.median(sample / base for sample, base in zip(samples, direct, strict=True))


def stopped(others: Sequence[Manager], quick: bool) -> None:
    samplers: dict[str, Callable[[], float]] = {
        "supervise": _bind(measures.blocked_s, SUPERVISE, slice(0, 1)),
        "its keeper": _bind(measures.blocked_s, SUPERVISE, slice(1, None)),
        **{other.name: _bind(measures.blocked_s, other, slice(None)) for other in others},
    }
    found = {name: max(taken) for name, taken in interleave(samplers, 1 if quick else 3).items()}
    rows = {name: [f"{seconds * 1e3:.0f}"] for name, seconds in found.items()}
    table("Longest pause of a server that logs while this is stopped for 2 s (the worst of all runs)", ["ms"], rows)
    aim("the server never waits", found["supervise"] < 0.5 and found["its keeper"] < 0.5)


def ends(_: Sequence[Manager], quick: bool) -> None:
    sizes, rounds, deadline_s = ((10, 100), 1, 3.0) if quick else ((10, 100, 500), 3, 10.0)
    tools = enders.tools()
    interleave({tool.name: Sampler(tool, Shape(10, 0), deadline_s) for tool in tools}, 1)  # warms all of them
    for shape in (Shape(size, percent) for size in sizes for percent in (0, 20)):
        taken = interleave({tool.name: Sampler(tool, shape, deadline_s) for tool in tools}, rounds)
        found = {name: [sample for sample in samples if isinstance(sample, Ends)] for name, samples in taken.items()}
        found = {name: samples for name, samples in found.items() if len(samples) == rounds}
        title = f"{shape.size} processes, {shape.percent} % get away; grace 0; never: not within {deadline_s:g} s"
        floor = ["empty ms", "of the loop", "of cgroup.kill"]
        heads = ["stopped: left", *floor, "tool gone ms", "SIGKILLed: left", *floor]
        table(title, heads, {name: _end_row(found, name) for name in found})
        for name, samples in taken.items():
            for why in sorted({sample for sample in samples if isinstance(sample, str)}):
                print(f"  {name} has no row: {why}")
        ours = [end for ends in found.get("supervise", []) for end in (ends.stopped, ends.killed)]
        aim("supervise leaves nobody", bool(ours) and all(end is not None and not end.left for end in ours))


def _end_row(found: Mapping[str, Sequence[Ends]], name: str) -> list[str]:
    floors = [[ends.stopped for ends in found.get(floor, [])] for floor in (enders.LOOP, enders.CGROUP)]
    stopped = [ends.stopped for ends in found[name]]
    killed = [ends.killed for ends in found[name] if ends.killed]
    gone = _milliseconds([end.over_s for end in stopped])
    return [*_end_cells(stopped, floors), gone, *(_end_cells(killed, floors) if killed else ["-"] * 4)]


def _end_cells(taken: Sequence[End], floors: Sequence[Sequence[End]]) -> list[str]:
    """Who is left at worst, the time, and how many times that of each floor in the same round."""
    shares = []
    for floor in floors:
        pairs = [(end.empty_s, base.empty_s) for end, base in zip(taken, floor, strict=bool(floor))]
        ratios = [seconds / base for seconds, base in pairs if seconds and base]
        shares.append(f"{statistics.median(ratios):.1f}" if len(ratios) == len(taken) else "-")
    return [str(max(end.left for end in taken)), _milliseconds([end.empty_s for end in taken]), *shares]


def _milliseconds(samples: Sequence[float | None]) -> str:
    """The median; never, if it was so once."""
    seconds = [sample for sample in samples if sample is not None]
    return f"{statistics.median(seconds) * 1e3:.1f}" if len(seconds) == len(samples) else "never"


def relaunched(_: Sequence[Manager], quick: bool) -> None:
    rounds = 1 if quick else 3
    if not zoo_alone.possible():
        print("\nrelaunch: no namespaces of our own here, and pkill and fuser are not let loose on the host")
        return
    missing = {one.name: why for one in relaunch.CONTESTANTS if (why := relaunch.available(one))}
    able = [one for one in relaunch.CONTESTANTS if one.name not in missing]
    for ignore_term in (False, True):
        samplers = {one.name: _bind(_relaunch, one, ignore_term) for one in able}
        found = interleave(samplers, rounds)
        title = f"Relaunch over {relaunch.STALE} orphans, {relaunch.SEGMENTS} segments and a held port"
        heads = ["up", "after s", "stale left", "segments left", "bystander"]
        rows = {name: _relaunch_row(tries) for name, tries in found.items()}
        table(f"{title}{', all ignoring SIGTERM' if ignore_term else ''}", heads, rows)
        for name, why in missing.items():
            print(f"  {name} has no row: {why}")
        ours = found[relaunch.OURS.name]
        for one in ours:
            print(one.said, end="")
        aim(f"up {rounds} of {rounds}", all(one.up_s is not None for one in ours))
        aim("nothing stale is left", not any(one.stale or one.segments for one in ours))
        aim("the bystander lives", all(one.bystander for one in ours))
        for recipe in relaunch.RECIPES:
            theirs = found.get(recipe.name, [])
            aim(f"faster than {recipe.name}", bool(theirs) and _median_up(ours) < _median_up(theirs))


def _relaunch(contestant: relaunch.Contestant, ignore_term: bool) -> relaunch.Try:
    with tempfile.TemporaryDirectory(prefix="sv-") as directory:
        return relaunch.attempt(contestant, ignore_term=ignore_term, directory=Path(directory))


def _relaunch_row(tries: Sequence[relaunch.Try]) -> list[str]:
    """Who is left at worst; the median of the times."""
    up_s = _median_up(tries)
    return [
        f"{sum(one.up_s is not None for one in tries)} of {len(tries)}",
        f"{up_s:.1f}" if up_s < math.inf else "never",
        str(max(one.stale for one in tries)),
        str(max(one.segments for one in tries)),
        "alive" if all(one.bystander for one in tries) else "killed",
    ]


def _median_up(tries: Sequence[relaunch.Try]) -> float:
    return statistics.median(math.inf if one.up_s is None else one.up_s for one in tries)


def slates(_: Sequence[Manager], quick: bool) -> None:
    if not zoo_alone.possible():
        print("\nslate: no namespaces of our own here, and pkill is not let loose on the host")
        return
    with tempfile.TemporaryDirectory(prefix="sv-") as directory:
        taken = slate.measure(Path(directory), 3 if quick else 9)
    titles = {
        "clean": (f"The slate of a clean host with {slate.PROCESSES} processes", slate.PGREP),
        "full": ("The slate with an orphan that holds the port, a segment and a socket", slate.RECIPE),
    }
    for part, (title, base) in titles.items():
        samples = taken[part]
        rows = {
            name: [f"{statistics.median(seconds) * 1e3:.0f}", f"{_share(seconds, samples[base]):.2f}"]
            for name, seconds in samples.items()
        }
        table(title, ["ms", f"of {base[:13]}"], rows)
    aim("clean: at most 3 times pgrep -f", _share(taken["clean"][slate.SWEEP], taken["clean"][slate.PGREP]) <= 3)
    for name in (slate.SWEEP, slate.CLEAN):
        faster = _share(taken["full"][slate.RECIPE], taken["full"][name]) >= 10
        aim(f"{name}: at least 10 times faster than the recipe", faster)


def diagnosed(log_mb: int, quick: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="sv-") as directory:
        log = Path(directory) / "server.log"
        diagnosis.write_log(log, log_mb * 1_000_000)
        readers, size = diagnosis.readers(log), log.stat().st_size / 1e6
        interleave(readers, 1)  # warms the page cache
        taken = interleave(readers, 3)
        log.unlink()
        samplers = {name: _bind(diagnosis.latencies, name, Path(directory), 8.0) for name in ("tail", "watch")}
        waited = interleave(samplers, 1 if quick else 5)
    walls = {name: [each.wall_s for each in samples] for name, samples in taken.items()}
    cpus = {name: [each.cpu_s for each in samples] for name, samples in taken.items()}
    shares = {name: [f"{_share(each[name], each['grep -E']):.2f}" for each in (walls, cpus)] for name in taken}
    rows = {name: [f"{size / statistics.median(walls[name]):.0f}", *shares[name]] for name in taken}
    table(f"The first cause of a log of {size:.0f} MB", ["MB/s", "of grep's time", "of its CPU time"], rows)
    aim("within 3 times of grep -E", _share(walls["supervise explain"], walls["grep -E"]) <= 3)
    delays = {name: sorted(delay for seen in each for delay in seen.delays) for name, each in waited.items()}
    title = f"From the writing of a fatal line to its detection, at {diagnosis.RATE / 1e6:.0f} MB/s of log"
    rows = {n: [f"{len(d)}", f"{statistics.median(d) * 1e3:.1f}", f"{_p99(d) * 1e3:.1f}"] for n, d in delays.items()}
    table(title, ["lines", "median ms", "p99 ms"], rows)
    aim("p99 within 50 ms of a bare inotify tail", _p99(delays["watch"]) - _p99(delays["tail"]) <= 0.05)
    aim("no line is missed", len(delays["watch"]) == sum(seen.written for seen in waited["watch"]))


def _p99(ordered: Sequence[float]) -> float:
    return ordered[int(len(ordered) * 0.99)]


def _bind(function: Callable[..., T], *arguments: object) -> Callable[[], T]:
    return lambda: function(*arguments)


def interleave(samplers: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """One sample of each in turn, so that what the machine does meanwhile falls on all of them."""
    samples: dict[str, list[T]] = {name: [] for name in samplers}
    for _ in range(rounds):
        for name, sample in samplers.items():
            samples[name].append(sample())
    return samples


def table(title: str, heads: Sequence[str], rows: Mapping[str, Sequence[str]]) -> None:
    print(f"\n{title} ({measures.cores()} CPUs)")
    width = max(map(len, rows))
    print(" " * width, *(f"{head:>16}" for head in heads))
    for name, cells in rows.items():
        print(f"{name:<{width}}", *(f"{cell:>16}" for cell in cells))


def aim(text: str, reached: bool) -> None:
    print(f"  {'reached' if reached else 'MISSED '}  {text}", flush=True)


if __name__ == "__main__":
    main()
