"""Power limits and locked clocks: set for a reservation, restored when it ends."""
