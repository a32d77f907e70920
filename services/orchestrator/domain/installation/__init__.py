"""What the present executors can run, and what they lack for a task."""
