"""The `gpusteward` command: starts the platform, and is a client of its gateway.

Consumes the gateway's HTTP API and WebSockets. Publishes and owns nothing. Modules import what is
slow to load (aiohttp, rich, the supervisor) where they use it, so that `--help` answers at once.
"""
