"""Pure decisions of the executor: traffic, stream decoding, benchmark aggregates."""
