"""Whether files compile, as the interpreter says that is to import them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from supervise.host.syntax import mistakes


@pytest.mark.parametrize(
    ("text", "line", "why", "shown"),
    [
        ("x = 1\ndef f(:\n", 2, "SyntaxError: invalid syntax", "def f(:"),
        ("def f():\nreturn 1\n", 2, "IndentationError: expected an indented block", "return 1"),
        ("x = 1\nreturn x\n", 2, "SyntaxError: 'return' outside function", ""),
        ("x = '\0'", None, "", ""),
        ("x = 'ä\n", 1, "SyntaxError: unterminated string literal", "x = 'ä"),
    ],
)
def test_a_mistake(tmp_path: Path, text: str, line: int | None, why: str, shown: str) -> None:
    (tmp_path / "good.py").write_text("x = 1")
    (tmp_path / "bad.py").write_text(text)
    (found,) = mistakes([str(tmp_path / "good.py"), str(tmp_path / "bad.py")], sys.executable)
    assert found.path == str(tmp_path / "bad.py")
    assert found.line == line or "\0" in text
    assert why in found.why
    assert shown in found.text


@pytest.mark.parametrize("text", ["", "x = 1", "'\\d' is 1", "# -*- coding: latin-1 -*-\nx = '\xe4'"])
def test_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "good.py").write_bytes(text.encode("latin-1"))
    assert mistakes([str(tmp_path / "good.py"), str(tmp_path / "gone.py")], sys.executable) == ()


def test_who_does_not_answer_has_found_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("(")
    assert mistakes([str(tmp_path / "bad.py")], "/nonexistent/python") == ()
    assert mistakes([str(tmp_path / "bad.py")], "/bin/true") == ()
    assert mistakes([], "/nonexistent/python") == ()
