"""Load on an OpenAI-compatible server, and what it measured, whichever tool makes the load."""
