"""Attempts that run one engine over several nodes."""
