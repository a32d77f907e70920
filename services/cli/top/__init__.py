"""A live view of every GPU, in the terminal."""
