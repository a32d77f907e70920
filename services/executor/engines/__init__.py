"""Inference engines: the table of their commands, as processes and in containers.

Both run as processes of their own (`python -m shared.engines.<name>.server`) and are
driven over HTTP alone, like any foreign engine.
"""
