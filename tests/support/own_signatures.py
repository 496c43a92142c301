"""A failure that no shipped set knows, as a user would write it down."""

from __future__ import annotations

OWN = """
[[signature]]
id = "licence-server-down"
role = "root"
literals = ["licence server"]
pattern = '^licence server (?P<name>\\S+) does not answer$'
class = "transient"
fatal = true
meaning = "{name} does not answer."
advice = ["Start {name}."]
match = ["licence server lic1 does not answer"]
nomatch = ["the licence server answers"]
"""
