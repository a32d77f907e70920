"""What makes a task file one that can be planned, beside its types."""
