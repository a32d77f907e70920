"""One attempt of an experiment, from its command to its outcome."""
