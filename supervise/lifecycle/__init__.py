"""The life of one attempt as a pure function: state and event in, next state and effects out.

    Sweeping -> Starting -> Ready -> (Capturing ->) Stopping -> Killing -> Verifying -> (Waiting -> Sweeping | Done)

States carry their data; there are no flags beside them. Nothing here reads a clock, a file or a process: what happens
comes in as an event, what is to be done goes out as an effect, and the runner connects the two to the world.
"""

from __future__ import annotations

from supervise.lifecycle.states import (
    Agreed,
    Broken,
    Capturing,
    Cause,
    Done,
    Effect,
    Event,
    EvidenceTaken,
    FatalSeen,
    GroupEnded,
    Hung,
    KeeperLost,
    Killing,
    LaunchFailed,
    LeaderExited,
    LingerExpired,
    Ready,
    Reason,
    RelaunchDue,
    RestartAsked,
    SlateCleaned,
    SlateRefused,
    StartExpired,
    Starting,
    State,
    Step,
    StopAsked,
    Stopping,
    Sweeping,
    Verified,
    Verifying,
    Waiting,
)
from supervise.lifecycle.step import conclude, step

__all__ = [
    "Agreed",
    "Broken",
    "Capturing",
    "Cause",
    "Done",
    "Effect",
    "Event",
    "EvidenceTaken",
    "FatalSeen",
    "GroupEnded",
    "Hung",
    "KeeperLost",
    "Killing",
    "LaunchFailed",
    "LeaderExited",
    "LingerExpired",
    "Ready",
    "Reason",
    "RelaunchDue",
    "RestartAsked",
    "SlateCleaned",
    "SlateRefused",
    "StartExpired",
    "Starting",
    "State",
    "Step",
    "StopAsked",
    "Stopping",
    "Sweeping",
    "Verified",
    "Verifying",
    "Waiting",
    "conclude",
    "step",
]
