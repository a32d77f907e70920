"""Talking to an OpenID provider: its documents, keys, tokens and answers."""
