"""What is said when a profile or a signature file is damaged."""

from __future__ import annotations


class ProfileError(ValueError):
    """One entry of one file does not fit; its text is a single line that names file, key, problem and what is allowed.

    Args:
        file: path or name of the file.
        key: dotted path of the entry, empty for the file as a whole.
        problem: what is wrong, as a clause.
        allowed: what would be right.
    """

    def __init__(self, file: str, key: str, problem: str, allowed: str) -> None:
        self.file = file
        self.key = key
        self.problem = problem
        self.allowed = allowed
        super().__init__(file, key, problem, allowed)

    def __str__(self) -> str:
        where = f"{self.file}: {self.key}" if self.key else self.file
        return " ".join(f"{where}: {self.problem}; allowed: {self.allowed}".split())
