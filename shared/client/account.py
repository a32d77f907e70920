"""The account of the operating system that runs a client, which nothing proves to a gateway."""

import getpass


def account_name() -> str:
    """Return who runs this process, as far as the system says; empty: it does not."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
