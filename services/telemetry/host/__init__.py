"""What the node's operating system and containers know of a process."""
