"""What a task may give to an engine, checked where tasks are accepted and where the engine starts.

The lists by engine and version are data: `vllm.py`, `sglang.py`, `llamacpp.py`.
"""
