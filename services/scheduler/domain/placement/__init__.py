"""Which devices fit a request, which of them are best, and why others do not fit."""
