"""Measurements, history of GPUs and engines, reports and prices."""
