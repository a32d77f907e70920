"""Inference engines: the table of their commands, and the two servers that ship with us.

Both run as processes of their own (`python -m services.executor.engines.servers.<name>`) and are
driven over HTTP alone, like any foreign engine.
"""
