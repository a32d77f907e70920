"""TLS of everything that listens or connects: contexts, certificates of our own, when they end."""
