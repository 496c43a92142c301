"""The verbs beside `run`: each one function that returns an exit status."""
