"""Nodes of a Kubernetes cluster, and what a task may name in one."""
