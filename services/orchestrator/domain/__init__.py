"""What a task becomes and what follows from each fact: pure decisions on plain data."""
