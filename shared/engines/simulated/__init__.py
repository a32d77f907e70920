"""A simulated engine: an OpenAI-compatible server without a model, to try and to test with."""
