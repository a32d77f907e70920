"""What follows for a task, an experiment and an attempt from each fact."""
