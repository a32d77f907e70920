"""This host's processes and addresses, and other executors on it."""
