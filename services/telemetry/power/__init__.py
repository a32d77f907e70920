"""Power caps: set for a reservation, restored when it ends."""
