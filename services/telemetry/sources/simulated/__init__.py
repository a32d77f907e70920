"""A fleet from a TOML file, marked simulated everywhere it shows."""
