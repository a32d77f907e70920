"""The strategies of a search, one file each, named like the strategy."""
