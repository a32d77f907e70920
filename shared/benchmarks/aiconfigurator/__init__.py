"""AIConfigurator predicts what an engine does on a GPU; it is asked in its own environment."""
