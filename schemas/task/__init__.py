"""The task file, what a benchmark is asked to do, and what a task found out."""
