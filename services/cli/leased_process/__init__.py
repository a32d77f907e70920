"""A process that runs on reserved GPUs for as long as its lease is renewed."""
