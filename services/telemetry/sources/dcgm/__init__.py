"""A dcgm-exporter's page."""
