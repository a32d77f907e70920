"""llama.cpp: llama-server in containers, and the same library in a process of ours."""
