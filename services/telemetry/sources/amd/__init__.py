"""amd-smi and rocm-smi."""
