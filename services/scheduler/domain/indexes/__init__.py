"""Which nodes and devices can serve a request now, known without a scan of the fleet."""
