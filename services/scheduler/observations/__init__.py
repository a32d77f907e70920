"""What nodes report between two changes of the ledger, in memory alone."""
