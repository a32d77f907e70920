"""What a search is given beside its own history: prices, a prior, past tasks, quality."""
