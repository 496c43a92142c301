"""Three launches of a real server: the lines after each, and what `diff` and `history` say of them."""

from __future__ import annotations

import json

from tests.support.launcher import Launched, Supervise, free_port, standin


def compared(launched: Launched) -> list[str]:
    """The lines about the attempt before, without their label."""
    lines = launched.stderr.splitlines()
    at = next((index for index, line in enumerate(lines) if line.startswith("compared ")), len(lines))
    return [line[9:] for line in lines[at : at + 2] if line.startswith(("compared ", " "))]


def test_what_changed_and_whether_it_helped(supervise: Supervise) -> None:
    port = free_port()
    options = ("--name", "X", "--profile", "vllm")
    broken = standin("--load-s", 0.2, "--crash-at", "load", "--crash-text", "KeyError: 'x'", port=port)
    assert compared(supervise.run(*options, *broken)) == []
    [differs] = compared(supervise.run(*options, *broken))
    # That it failed of the same is told as it ever was, once.
    assert differs.startswith("nothing recorded differs from #1")

    served = supervise.start(*options, *standin("--load-s", 0.2, port=port))
    served.wait_said("\nready ")
    assert supervise.run("diff", "X", 2, 3).popen.returncode == 1
    assert "#3, which runs" in supervise.run("diff", "X").stdout
    supervise.run("stop", "X")
    served.wait()
    differs, ended = compared(served)
    assert differs.startswith("differs from #2 by: removed --crash-at load, removed --crash-text KeyError: 'x'")
    assert ended == "cause moved: KeyError at weights -> ready"

    told = supervise.run("diff", "--json")
    said = json.loads(told.stdout)
    assert told.popen.returncode == 1
    assert [each["told"] for each in said["differences"] if each["kind"] == "flag"] == [
        "removed --crash-at load",
        "removed --crash-text KeyError: 'x'",
    ]
    assert (said["same"], said["end"]["told"], said["notes"]) == (False, ended, [])
    rows = json.loads(supervise.run("history", "--json").stdout)["attempts"]
    assert [(row["attempt"], row["reached"], row["same_cause_as"]) for row in rows] == [
        (1, "weights", None),
        (2, "weights", 1),
        (3, "ready", None),
    ]
    assert len(supervise.run("history").stdout.splitlines()) == 4
