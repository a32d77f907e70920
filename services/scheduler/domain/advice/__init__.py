"""What a waiting request can know: reasons, expected start, what would help."""
