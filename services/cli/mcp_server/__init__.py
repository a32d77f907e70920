"""The platform for agents: tools over the Model Context Protocol, on top of the HTTP API."""
