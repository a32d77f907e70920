"""What an experiment's GPU samples say, computed from plain data."""
