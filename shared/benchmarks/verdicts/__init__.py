"""Which configuration is best, what it has to meet, and how far that can be trusted."""
