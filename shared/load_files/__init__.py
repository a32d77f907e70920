"""What a load is made of: files that are fetched, and made into what its tools send."""
