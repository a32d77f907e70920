"""A task's report: what it found out, from what its owners know."""
