"""Figures of an experiment's GPU samples, computed from plain data."""
