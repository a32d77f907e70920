"""Engines: one folder each with a profile, and what a task may give to one.

`table.py` has all profiles. Parameters are checked where tasks are accepted and where the engine
starts. To add an engine, add a folder with a `profile.py`: see CONTRIBUTING.md.
"""
