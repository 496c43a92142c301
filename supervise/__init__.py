"""supervise: a launcher for LLM servers that starts clean, names the first cause, and leaves nothing behind."""

__version__ = "0.1.0"
