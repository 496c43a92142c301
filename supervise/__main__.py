"""`python -m supervise`."""

from supervise.cli import main

main()
