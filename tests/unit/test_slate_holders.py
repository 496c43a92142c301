"""What would make a holder let go, where it is one of ours."""

import pytest

from supervise.model.process import HostId, Process, ProcessId
from supervise.model.snapshot import Snapshot
from supervise.slate.holders import describe
from supervise.slate.request import SlateRequest

HOST = HostId("boot", 1)
SHELL = Process(ProcessId(7, 70), 1, 7, 7, "S", "bash", 1000, ("bash",), namespace=1)
REQUEST = SlateRequest("r", None, ())


@pytest.mark.parametrize("lineage", [frozenset({1, 7}), frozenset({1})], ids=["our parent", "a stranger"])
def test_nobody_is_advised_to_kill_his_own_shell(lineage: frozenset[int]) -> None:
    holder = describe(SHELL, Snapshot(HOST, 1000, lineage, {7: SHELL}), REQUEST)
    if 7 in lineage:
        assert holder.remedy == "it is supervise's own parent: stop it by hand"
        assert holder.eviction is None
    else:
        assert holder.remedy == "--evict all ends it; or kill 7"
