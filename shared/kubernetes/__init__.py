"""The API of a Kubernetes cluster: calls with deadlines, watches that resume, names that fit."""
