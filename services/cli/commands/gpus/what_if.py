"""What else would have been decided: for another request, or by another policy."""

from datetime import UTC, timedelta
from typing import TYPE_CHECKING

import click

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.policy import PolicyTrial, TriedPolicy
from schemas.scheduler.views import AvailabilityView
from services.cli.commands.gpus.insight import every_reason_option, print_availability
from services.cli.completion import complete_ids
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import number, print_json, print_table, table_options, wide_option
from services.cli.lookup import find_reservation
from services.cli.options import Target, TimeSpan, reading
from services.cli.request_options import request_options
from shared.clock import utcnow

if TYPE_CHECKING:
    from shared.client.http import StewardClient


class _WithDefault(click.Group):
    """A group whose first argument may also be that of its command `request`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["request", *args]
        return super().parse_args(ctx, args)


@click.group("what-if", cls=_WithDefault)
def what_if() -> None:
    """Say what else would have been decided: for another request, or by another policy.

    `what-if ID` is `what-if request ID`.
    """


@what_if.command("request")
@click.argument("identifier", metavar="ID", shell_complete=complete_ids)
@request_options(whole_fleet=True)
@every_reason_option
@reading
@wide_option
def what_if_request(
    target: Target, identifier: str, request: GpuRequest, every_reason: bool
) -> None:
    """Say whether a waiting reservation would be granted now had it asked for this instead."""

    async def ask(client: "StewardClient") -> AvailabilityView:
        reservation = await find_reservation(client, identifier)
        return await client.what_if(reservation.reservation_id, request)

    print_availability(target.ask(ask), as_json=target.as_json, every_reason=every_reason)


@what_if.command("policy")
@click.argument(
    "policy", metavar="POLICY", type=click.Choice([policy.value for policy in TriedPolicy])
)
@click.option(
    "--since",
    type=TimeSpan(),
    default="7d",
    show_default=True,
    help="Length of the past that counts.",
)
@reading
@table_options
def what_if_policy(target: Target, policy: str, since: timedelta) -> None:
    """Serve the recorded requests again, by the present policy and by another, side by side.

    POLICY is the present one with one thing changed: density, no_density, no_preemption, no_aging.
    """
    since_at = utcnow() - since
    trial = target.ask(lambda client: client.try_policy(TriedPolicy(policy), since_at=since_at))
    if target.as_json:
        print_json(trial)
        return
    print_table(trial_table(trial))
    for line in trial_lines(trial):
        click.echo(line)


def trial_table(trial: PolicyTrial) -> Table:
    """Return a table with a row per figure: measured where known, by the present and by the tried
    policy.
    """
    present, tried_outcome = trial.present, trial.tried
    rows = [
        [
            "wait p50 s",
            *_figures(trial.recorded_p50_seconds, present.p50_seconds, tried_outcome.p50_seconds),
        ],
        [
            "wait p95 s",
            *_figures(trial.recorded_p95_seconds, present.p95_seconds, tried_outcome.p95_seconds),
        ],
        ["granted", UNKNOWN, str(present.granted), str(tried_outcome.granted)],
        ["still waiting", UNKNOWN, str(present.waiting), str(tried_outcome.waiting)],
        ["preempted", UNKNOWN, str(present.preempted), str(tried_outcome.preempted)],
        ["GPUs used %", *_figures(None, present.used_percent, tried_outcome.used_percent)],
        [
            "opened nodes full %",
            *_figures(None, present.packed_percent, tried_outcome.packed_percent),
        ],
    ]
    of = {namespace.namespace: namespace for namespace in tried_outcome.namespaces}
    for namespace in present.namespaces:
        other, name = of.get(namespace.namespace), namespace.namespace or "(none)"
        hours, wait = (other.gpu_hours, other.p95_seconds) if other is not None else (None, None)
        rows.append([f"{name}: GPU h", *_figures(None, namespace.gpu_hours, hours)])
        rows.append([f"{name}: wait p95 s", *_figures(None, namespace.p95_seconds, wait)])
    headings = ["figure", "recorded", "present", trial.policy.value]
    return Table(headings, rows, numeric=frozenset(headings[1:]))


def trial_lines(trial: PolicyTrial) -> list[str]:
    start, end = (f"{at.astimezone(UTC):%F %H:%M}" for at in (trial.start_at, trial.end_at))
    return [
        f"{trial.present.requests} requests of {trial.decisions} decisions, {start} to {end} UTC",
        *(f"left out: {sentence}" for sentence in trial.left_out),
    ]


def _figures(*values: float | None) -> list[str]:
    return [number(value, 1) for value in values]
