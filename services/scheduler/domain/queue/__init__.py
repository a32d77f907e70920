"""In which order requests are granted, incrementally."""
