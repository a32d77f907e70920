"""In which order requests are granted, incrementally.

What may be touched here: docs/explanation/scheduler.md, "What may be touched where".
"""
