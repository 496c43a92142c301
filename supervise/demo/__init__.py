"""A stand-in server: looks, loads, fails and lingers like vLLM, and needs neither a GPU nor a model."""
