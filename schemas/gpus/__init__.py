"""GPUs as they are asked for, granted, divided, and checked before anything runs on them."""
