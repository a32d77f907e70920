"""MPS control daemons, one for each device, where the settings have the agent run them."""
