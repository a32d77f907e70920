"""Commands, node reports and queries that the scheduler receives."""
