"""What survives this process: commands, attempts, epochs and unsent events, in SQLite."""
