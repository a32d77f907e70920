"""The decisions of the one scheduler that leads: the engine, what feeds it, the loop."""
