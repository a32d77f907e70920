"""The platform that a command starts in the background of this machine."""
