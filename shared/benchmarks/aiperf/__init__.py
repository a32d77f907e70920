"""AIPerf as a process in an environment of its own; nothing of it is imported here."""
