"""What a search is told beside its own history: prices, a prior, past tasks, quality."""
