"""From a task file to what can be run in this installation, or to what it lacks for it."""
