"""Compares what is reserved with what runs and with what uses the GPUs."""
