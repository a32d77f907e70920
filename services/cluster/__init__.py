"""What a Kubernetes cluster has: its nodes, their GPUs, and what pods and claims hold of them."""
