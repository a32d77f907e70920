"""Where an engine runs: as processes of this host, or in a container."""
