"""Commands about tuning tasks: submitting, following, pausing, logs, presets, archives."""
