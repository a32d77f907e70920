"""NVML, called in a child process so that a hung driver costs one GPU's readings."""
