"""Monitors the GPUs of one node.

Publishes `telemetry.gpu_sampled` every tick, `telemetry.inventory_reported` at its start, at every
change and every 30 s, and `telemetry.health_changed`; answers `telemetry.snapshot`, `agent`,
`gpu_info`, `start_monitoring` and `stop_monitoring`; does `telemetry.burst` and
`telemetry.set_power_limit`. Serves Prometheus on loopback. Consumes the scheduler's reservation
events: for the labels of its metrics, the end of power limits, and the load of a simulated fleet.
Owns one file, the power limits to restore; runs once on every node.
"""
