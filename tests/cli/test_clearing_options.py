"""Options of the slate that can mean nothing: refused in one line, before anything is looked at."""

from __future__ import annotations

import pytest

from tests.support.launcher import Supervise


@pytest.mark.parametrize("glob", ["", " "])
def test_a_variable_that_is_not_set_names_no_artefacts(supervise: Supervise, glob: str) -> None:
    done = supervise.run("clean", "--dry-run", "--artefacts", glob)
    assert done.popen.returncode == 2
    assert "is a variable of the shell not set?" in done.stderr


@pytest.mark.root
def test_only_root_treats_other_users_as_itself(supervise: Supervise, supervise_as_nobody: Supervise) -> None:
    options = ("clean", "--dry-run", "--evict-user", "61234")
    done = supervise_as_nobody.run(*options)
    assert done.popen.returncode == 2
    assert "--evict-user has no effect unless root gives it" in done.stderr
    assert supervise.run(*options).popen.returncode != 2
