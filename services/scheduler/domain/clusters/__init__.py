"""Kubernetes clusters: what their nodes have left, and which node a request should have."""
