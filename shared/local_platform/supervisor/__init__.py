"""Runs the platform's processes on one machine: starts, restarts, stops them, all to the end."""
