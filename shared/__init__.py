"""What services have in common: bus, database, settings, logging, lifecycle, servers, client."""
