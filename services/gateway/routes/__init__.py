"""The routes below `/api/v1`, one module per kind of thing."""
