"""Where reserved, running and physically used disagree."""
