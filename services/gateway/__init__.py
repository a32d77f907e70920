"""How people and programs see the platform: HTTP, WebSocket, OpenAPI.

Asks every other service by command and query, receives samples and live messages as they pass, and
stores every event of the stream in a log of its own, whose positions are the cursors that clients
resume from. Publishes `gateway.custom`. Runs on the platform's host.
"""
