"""Standard output of a verb that answers: whoever reads it may leave early, and a full disk is called by its name."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def answering() -> Iterator[None]:
    """Bound the writing of an answer; it is out when this is left.

    A reader that has seen enough (`| head -1`) changes nothing: what is left to write goes nowhere.

    Raises:
        OSError: it could not be written, for another reason than that; it names standard output.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, sys.stdout.fileno())
        os.close(silent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from error
