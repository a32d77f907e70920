"""The built-in load generator, in one process or several."""
