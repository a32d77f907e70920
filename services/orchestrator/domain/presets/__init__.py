"""Parameters by name: of task files' blocks, of this release, and saved ones merged."""
