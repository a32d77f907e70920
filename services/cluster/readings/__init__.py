"""Readings of GPUs where no telemetry agent is: from exporters, and from pods of ours."""
