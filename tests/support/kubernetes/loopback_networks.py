"""Loopback networks for pods and Services that no other control plane of this host has."""

import random
import socket
from contextlib import suppress
from typing import Final

# Nobody listens there; below those that tests choose from.
CLAIM_PORT: Final = 17_999
# 127.0.0.0/16 is everybody's.
FIRST_PAIRS: Final = range(1, 255, 2)


class LoopbackNetworks:
    """127.n.0.0/16 for pods and 127.(n+1).0.0/16 for Services, claimed by an address in them that
    stays bound until `close`, or until this process ends.
    """

    def __init__(self) -> None:
        self._number, self._claim = _claim()

    @property
    def pods(self) -> str:
        return f"127.{self._number}.0.0/16"

    @property
    def services(self) -> str:
        return f"127.{self._number + 1}.0.0/16"

    def pod_address(self, number: int) -> str:
        """One that is given to no pod before there are 51,200 of them; numbers up to 254."""
        return f"127.{self._number}.200.{number}"

    def close(self) -> None:
        self._claim.close()


def _claim() -> tuple[int, socket.socket]:
    for number in random.sample(FIRST_PAIRS, len(FIRST_PAIRS)):
        claim = socket.socket()
        with suppress(OSError):
            claim.bind((f"127.{number}.255.254", CLAIM_PORT))
            return number, claim
        claim.close()
    raise AssertionError("expected a loopback network that nobody has, found none of 127")
