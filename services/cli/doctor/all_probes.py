"""Every check, in the order in which people read them."""

from collections.abc import Sequence
from dataclasses import replace

import click

from services.cli.doctor import containers, gpus, host, installation, kubernetes, software
from services.cli.doctor.check import Probe


def all_probes(required: Sequence[str] = ()) -> tuple[Probe, ...]:
    """The checks, those named in `required` as needed. Raises click.UsageError for other names."""
    probes = (
        *host.PROBES,
        *installation.PROBES,
        *gpus.PROBES,
        *containers.PROBES,
        *kubernetes.PROBES,
        *software.probes(),
    )
    names = [probe.name for probe in probes]
    if unknown := sorted(set(required) - set(names)):
        raise click.UsageError(f"expected checks of {', '.join(names)}, found {', '.join(unknown)}")
    return tuple(replace(probe, needed=probe.needed or probe.name in required) for probe in probes)
