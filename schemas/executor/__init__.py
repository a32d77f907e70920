"""Executors' commands, events and views: attempts, their logs and ranks, what engines report."""
