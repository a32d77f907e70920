"""The node's Prometheus page, under dcgm-exporter's names."""
