"""Datasets of prompts: fetched, read within bounds, and selected."""
