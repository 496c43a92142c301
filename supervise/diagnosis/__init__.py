"""From the lines of a log to the first cause: lines, tracebacks, signatures, progress, verdict. Pure."""
