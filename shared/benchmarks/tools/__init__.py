"""Benchmark tools: what each is to its caller, takes of a benchmark, and how it is installed."""
