"""A process beside the executor that kills what a paused or killed one cannot."""
