"""The scheduler's commands, events and views: reservations, devices, nodes, namespaces."""
