"""Whether other people have accounts on this host."""

import os
import pwd
from contextlib import suppress
from pathlib import Path
from typing import Final

FIRST_PERSON_UID: Final = 1000  # below are the system's own accounts
NOBODY_UID: Final = 65_534
NO_LOGIN: Final = frozenset({"nologin", "false"})
# Whose directories these are may log in, although a directory service need not list its accounts.
OF_PEOPLE: Final = (Path("/home"), Path("/run/user"))


def other_users() -> list[str]:
    """Names of people who may log in here, beside the user who runs this, also through sudo."""
    own_ids = {os.getuid(), int(os.environ.get("SUDO_UID") or os.getuid())}
    accounts = {account.pw_uid: account for account in pwd.getpwall()}
    for uid in _owners() - accounts.keys():
        with suppress(KeyError):
            accounts[uid] = pwd.getpwuid(uid)
    return sorted(
        account.pw_name
        for uid, account in accounts.items()
        if uid not in own_ids and is_person(uid, account.pw_shell)
    )


def is_person(uid: int, shell: str) -> bool:
    return uid >= FIRST_PERSON_UID and uid != NOBODY_UID and Path(shell).name not in NO_LOGIN


def _owners() -> set[int]:
    owner_ids = set()
    for directory in OF_PEOPLE:
        with suppress(OSError):
            owner_ids |= {path.lstat().st_uid for path in directory.iterdir()}
    return owner_ids
