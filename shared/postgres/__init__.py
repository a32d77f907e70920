"""Postgres: connections, the outbox of events, and durable commands."""
