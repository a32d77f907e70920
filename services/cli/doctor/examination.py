"""Runs every check at once, and waits for none of them longer than the deadline."""

import threading
import time
from collections.abc import Sequence
from typing import Final

from services.cli.doctor.check import Check, CheckResult, Probe, error
from services.cli.doctor.host_facts import HostFacts

DEADLINE_SECONDS: Final = 3.0
LAST_WORDS_SECONDS: Final = 0.5


def examine(
    probes: Sequence[Probe], facts: HostFacts, *, deadline_seconds: float = DEADLINE_SECONDS
) -> tuple[Check, ...]:
    """A check for every probe, in their order, whatever they do."""
    deadline = time.monotonic() + deadline_seconds
    running = [_Inspection(probe, facts) for probe in probes]
    return tuple(inspection.check(deadline, deadline_seconds) for inspection in running)


class _Inspection:
    """One probe in a thread of its own, which the process does not wait for at its end."""

    def __init__(self, probe: Probe, facts: HostFacts) -> None:
        self._probe = probe
        self._facts = facts
        self._seen: CheckResult | None = None
        self._thread = threading.Thread(target=self._inspect, daemon=True, name=probe.name)
        self._thread.start()

    def check(self, deadline: float, deadline_seconds: float) -> Check:
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return self._probe.check(
            self._seen
            or error(
                f"no answer within {deadline_seconds:g} s",
                "something below hangs: a driver, a disk on the network or a name server; "
                "`sudo dmesg | tail` may name it",
            )
        )

    def _inspect(self) -> None:
        try:
            self._seen = self._probe.inspect(self._facts)
        except Exception as failure:  # noqa: BLE001  # one check's fault is not the others'
            self._seen = error(
                f"the check itself failed: {failure!r}", "report this: it is a fault of GPU Steward"
            )
