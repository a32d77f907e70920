"""Levels of load: which are measured, in what order, and what their requests say."""
