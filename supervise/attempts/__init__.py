"""What is kept of every attempt: its record, its one log, its outcome."""
