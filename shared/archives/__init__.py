"""Tasks and experiments as self-contained files that other installations read."""
