"""Routes of tasks, experiments, presets and archives."""
