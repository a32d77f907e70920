"""The HTTP server: who comes in, how it is documented, how errors are answered."""
