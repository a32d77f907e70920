"""What engines write: kept within a bound, readable while it grows."""
