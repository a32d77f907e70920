"""Logs of engines that ended, each with the kind of its cause."""
