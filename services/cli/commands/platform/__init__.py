"""Commands that start the platform, or a way into it."""
