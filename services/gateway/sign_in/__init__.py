"""Signing in: by the page, by a code, and by access tokens of the provider."""
