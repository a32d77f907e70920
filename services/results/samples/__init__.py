"""Samples of GPUs in Postgres: stored once each, in partitions by day."""
