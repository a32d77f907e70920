"""Servers that run as engines: llama.cpp with a packaged model, and a simulated one."""
