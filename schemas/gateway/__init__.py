"""What the gateway publishes itself, tokens, archives, and what only its clients see."""
