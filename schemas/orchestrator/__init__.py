"""The orchestrator's commands, events and views: tasks, experiments, presets."""
