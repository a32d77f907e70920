"""Whether a configuration answers as the baseline does."""
