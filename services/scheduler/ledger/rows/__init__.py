"""Rows of the ledger in and out: functions on a connection, inside the caller's transaction."""
