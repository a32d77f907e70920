"""What runs that the test's process has started."""

import psutil


def children_named(name: str) -> list[psutil.Process]:
    """Those that were not reaped yet, without children of theirs."""
    return [each for each in psutil.Process().children() if each.name() == name]
