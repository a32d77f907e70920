"""What Kubernetes says of this node: which pods its GPUs were given to."""
