"""Engines in containers of a Docker engine, known by their labels alone.

What is decided is plain data: `spec.py` (what a container is made of), `pull_progress.py`,
`../log_position.py`. What asks the engine is `client.py`, in threads and with deadlines.
"""
