"""Commands about GPUs: what would run where, why not, taking them and giving them back."""
