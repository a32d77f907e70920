"""Runs experiments on granted devices: engines as processes, and what measures them."""
