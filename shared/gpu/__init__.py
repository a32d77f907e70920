"""Rules about GPUs that several services apply. Pure, as a domain is."""
