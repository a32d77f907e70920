"""Runs experiments on granted devices: engines as processes, and the benchmarks that measure them."""
