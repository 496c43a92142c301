"""What can be told of a launch before anything is touched: would the engine fail, for a reason that is known now?"""

from supervise.preflight.checks import NAMES, check

__all__ = ["NAMES", "check"]
