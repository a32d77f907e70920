"""MIG instances, made and removed where the settings allow it."""
