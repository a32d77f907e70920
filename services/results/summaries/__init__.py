"""What attempts measured, joined to their GPUs' samples."""
