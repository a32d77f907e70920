"""What the services have in common: bus, database, settings, logging, lifecycle, embedded servers,
client.
"""
