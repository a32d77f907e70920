"""Backups of a platform with its own Postgres: one file, restored into an empty directory."""
