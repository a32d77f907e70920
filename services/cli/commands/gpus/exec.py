"""`exec`: a command that runs while its GPUs are reserved, and not a moment longer."""

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

import click
from msgspec.structs import replace

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.views import ReservationView
from services.cli.commands.gpus.reservations import ANSWER_TIMEOUT_SECONDS, require_grant
from services.cli.failures import LEASE_LOST_EXIT_CODE, leave
from services.cli.leased_process.process import (
    DeviceProcess,
    Interruption,
    device_environment,
    find_labelled_processes,
)
from services.cli.option_types import SecondsRange
from services.cli.options import Target, with_target
from services.cli.request_options import request_options, user_name
from shared.errors import RefusedError, UnavailableError
from shared.ids import host_node_id, new_id
from shared.waiting import cancel_and_wait

if TYPE_CHECKING:
    from services.cli.leased_process.lease import HeldLease
    from shared.client.http import StewardClient
    from shared.processes.cgroups import Cgroup

LEASE_TTL_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 10.0
CANNOT_EXECUTE: Final = 126
NOT_FOUND: Final = 127
NO_SUCH_COMMAND: Final = "no such command"
KILLED: Final = 128 + signal.SIGKILL


@dataclass(frozen=True, slots=True)
class ExecRequest:
    request: GpuRequest
    argv: tuple[str, ...]
    holder: str
    installation_id: str | None


@dataclass(slots=True)
class _Holding:
    """What has to be given back; no epoch yet means that it is withdrawn."""

    reservation_id: UUID
    epoch: int | None = None


def _refuse_cluster(_context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(
            "exec runs CMD on this host, and a cluster's GPUs are for its pods:"
            " `gpusteward reserve --cluster` holds them and says how a pod gets them"
        )


@click.command("exec", context_settings={"ignore_unknown_options": True})
@request_options()
@click.option(
    "--node", "host_id", envvar="GPUSTEWARD_NODE_ID", metavar="ID", help="Id of this host."
)
@click.option(
    "--ttl",
    type=SecondsRange(3, 3600),
    default=LEASE_TTL_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Lease; how soon others may have the GPUs after this host is gone.",
)
@click.option(
    "--cluster",
    is_flag=False,
    flag_value="",
    expose_value=False,
    hidden=True,
    callback=_refuse_cluster,
)
@with_target
@click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
def exec_command(
    target: Target,
    request: GpuRequest,
    host_id: str | None,
    ttl: float,
    argv: tuple[str, ...],
) -> None:
    """Run CMD on GPUs of this host that are reserved while it runs.

    CMD finds them in CUDA_VISIBLE_DEVICES, AMD's in HIP_VISIBLE_DEVICES too. The exit code is
    CMD's own; 75 if the reservation was lost and CMD had to be stopped, or ended after that, 127
    and 126 if it could not be started.
    That it has to give way to another reservation is said on standard error, with until when.

    All that CMD started ends with it where a control group can be written, as root. Elsewhere a
    process escapes that leaves CMD's process group and clears its environment, such as a
    grandchild under `setsid env -i`: it may go on using the GPUs after they are given back.
    """
    request = replace(request, node_ids=(host_id or host_node_id(),), lease_ttl_seconds=ttl)
    holder = f"exec/{user_name()}"
    exec_request = ExecRequest(request, argv, holder, _installation_id(target))
    if not _is_there(argv[0]):
        leave(_say_not_started(exec_request, NO_SUCH_COMMAND, NOT_FOUND))
    leave(target.ask(lambda client: _execute(client, exec_request), retry_seconds=RETRY_SECONDS))


async def _execute(client: "StewardClient", exec_request: ExecRequest) -> int:
    holding = _Holding(new_id())
    interruption = Interruption()
    try:
        await client.request_reservation(
            exec_request.request, holder=exec_request.holder, reservation_id=holding.reservation_id
        )
        view = require_grant(
            await client.await_reservation(
                holding.reservation_id,
                timeout_seconds=exec_request.request.wait_timeout_seconds + ANSWER_TIMEOUT_SECONDS,
            )
        )
        holding.epoch = view.epoch
        return await _run_on(client, view, exec_request)
    except asyncio.CancelledError:
        if interruption.signal is None:
            raise
        return 128 + interruption.signal
    finally:
        await _give_back(client, holding)


async def _run_on(client: "StewardClient", view: ReservationView, exec_request: ExecRequest) -> int:
    from services.cli.leased_process.lease import HeldLease
    from shared.processes.cgroups import CgroupLimits, Cgroups

    if view.epoch is None:
        raise TypeError(f"expected a granted reservation to have an epoch, found {view}")
    lease = HeldLease(client, view, view.epoch)
    environment = device_environment(view, view.epoch, installation_id=exec_request.installation_id)
    names = (exec_request.installation_id or "exec", view.node_id or "", str(view.reservation_id))
    cgroup = Cgroups.of_this_host().make(names, CgroupLimits())
    try:
        return await _run_in(cgroup, lease, environment, exec_request)
    finally:
        if cgroup is not None:
            await cgroup.end()


async def _run_in(
    cgroup: "Cgroup | None",
    lease: "HeldLease",
    environment: Mapping[str, str],
    exec_request: ExecRequest,
) -> int:
    from services.cli.leased_process.lease import LeaseLost

    enter_group = None if cgroup is None else cgroup.enter
    try:
        await lease.activate()
        process = DeviceProcess(exec_request.argv, environment, enter_group)
    except LeaseLost as error:
        return _say_lost(error, "was not started")
    except FileNotFoundError:
        return _say_not_started(exec_request, NO_SUCH_COMMAND, NOT_FOUND)
    except OSError as error:
        return _say_not_started(exec_request, error.strerror or str(error), CANNOT_EXECUTE)
    if any(device.simulated for device in lease.reservation.devices):
        click.echo("gpusteward: the reserved GPUs are simulated", err=True)
    with process.forwarding():
        return await _while_leased(process, lease)


async def _while_leased(process: DeviceProcess, lease: "HeldLease") -> int:
    from services.cli.leased_process.lease import LeaseLost
    from services.cli.leased_process.notice import say_when_asked_back

    renewing = asyncio.create_task(lease.renew_until_lost())
    noticing = asyncio.create_task(
        say_when_asked_back(lease.client, lease.reservation.reservation_id)
    )
    ending = asyncio.create_task(process.wait())
    try:
        await asyncio.wait({renewing, ending}, return_when=asyncio.FIRST_COMPLETED)
        if ending.done():
            # Stopped ourselves, we renewed nothing while it ran on.
            await cancel_and_wait(renewing)
            # A lease that is taken back before its end is fenced: its processes are killed.
            is_killed = ending.result() == KILLED
            lost = await lease.loss(asks=is_killed)
            if lost is None:
                return ending.result()
            return _say_lost(lost, "was killed" if is_killed else "ran on after that")
        await process.stop(lease.confirmed.stop_budget_seconds / 2)
        failed = renewing.exception()
        if isinstance(failed, LeaseLost):
            return _say_lost(failed, "was stopped")
        raise failed or RuntimeError("the lease is not kept any more")
    finally:
        await cancel_and_wait(renewing, noticing, ending)
        process.send(signal.SIGKILL)


async def _give_back(client: "StewardClient", holding: _Holding) -> None:
    """Whatever happened before. What cannot be given back ends with its lease."""
    stopped = not find_labelled_processes(holding.reservation_id)
    try:
        if holding.epoch is None:
            await client.cancel_reservation(holding.reservation_id)
        else:
            await client.release_reservation(holding.reservation_id, holding.epoch, stopped=stopped)
    except RefusedError:
        # It has ended already, or never was stored.
        return
    except UnavailableError as error:
        click.echo(
            f"gpusteward: reservation {holding.reservation_id} could not be given back ({error});"
            " it ends by itself with its lease",
            err=True,
        )


def _say_lost(error: Exception, what: str) -> int:
    click.echo(f"gpusteward: the reservation was lost and the command {what}: {error}", err=True)
    return LEASE_LOST_EXIT_CODE


def _is_there(command: str) -> bool:
    """Return whether there is such a file, or program on PATH: asked before GPUs are waited for."""
    return Path(command).exists() if "/" in command else shutil.which(command) is not None


def _say_not_started(exec_request: ExecRequest, why: str, code: int) -> int:
    click.echo(f"gpusteward: {exec_request.argv[0]}: {why}", err=True)
    return code


def _installation_id(target: Target) -> str | None:
    """Return the id of the platform on this machine; None if there is none."""
    if installation_id := os.environ.get("GPUSTEWARD_INSTALLATION_ID"):
        return installation_id
    directory = target.directory
    return str(directory.installation_id()) if directory.endpoint_path.exists() else None
