"""Where GPU readings come from: one folder a vendor or tool."""
