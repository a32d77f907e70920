"""Routes of GPUs, nodes, reservations and the scheduler."""
