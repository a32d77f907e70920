"""What is granted, and why not: pure decisions over a snapshot of fleet and queue."""
