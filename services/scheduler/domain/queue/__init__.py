"""In which order requests are granted, incrementally.

What may be touched here: docs/scheduler.md, "What may be touched where".
"""
