"""Watches the GPUs of one node.

Publishes `telemetry.gpu_sampled` every tick, `telemetry.inventory_reported` at its start, at every
change and every 30 s, and `telemetry.health_changed`; answers `telemetry.snapshot`. Consumes the
scheduler's reservation events for a simulated source alone, whose load follows them. Owns nothing
that outlives it; runs once on every node.
"""
