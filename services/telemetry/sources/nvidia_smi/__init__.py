"""nvidia-smi's CSV output."""
