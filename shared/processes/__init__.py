"""Processes of a host: started, bounded, found, signalled, and whose they are."""
