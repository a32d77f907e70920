"""`compare` and `leaderboard`: results of all tasks beside each other."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from schemas.gateway.comparison import ExperimentComparison, RowKind
from schemas.orchestrator.leaders import Leader, LeaderList
from schemas.task.objectives import Objective
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import (
    number,
    print_answer,
    print_list,
    settings_text,
    wide_option,
)
from services.cli.lookup import find_experiment
from services.cli.options import Target, reading

if TYPE_CHECKING:
    from shared.client.http import StewardClient


@click.command()
@click.argument("identifiers", metavar="EXPERIMENT...", nargs=-1, required=True)
@click.option("--all", "everything", is_flag=True, help="Show rows that are alike as well.")
@reading
@wide_option
def compare(target: Target, identifiers: Sequence[str], everything: bool) -> None:
    """Compare 2 to 8 EXPERIMENTS of any tasks side by side.

    What differs beside the parameters (engine, version, hardware, load) is marked: results may
    differ by it.
    """
    compared = target.ask(lambda client: _compare(client, identifiers))
    print_answer(compared, comparison_table(compared, everything), as_json=target.as_json)


async def _compare(client: "StewardClient", texts: Sequence[str]) -> ExperimentComparison:
    experiments = [await find_experiment(client, text) for text in texts]
    return await client.compare_experiments(experiment.experiment_id for experiment in experiments)


def comparison_table(compared: ExperimentComparison, everything: bool = True) -> Table:
    """Return a table with a column for each experiment; without `everything` of what differs."""
    headings = [f"{column.task_name}#{column.ordinal}" for column in compared.experiments]
    rows = [
        [
            row.kind.value,
            f"{row.name} ({row.unit})" if row.unit else row.name,
            "differs" if row.differs and row.kind not in {RowKind.RESULT, RowKind.TRUST} else "",
            *(
                (text or UNKNOWN) + (" *" if row.best == place else "")
                for place, text in enumerate(row.texts)
            ),
        ]
        for row in compared.rows
        if everything or row.differs or row.kind is RowKind.RESULT
    ]
    return Table(
        ["about", "value", "", *headings],
        rows,
        important=["about", "value", *headings],
        notes=[*compared.cautions, "* the best of the row"],
    )


@click.command()
@click.argument("model", required=False)
@click.option(
    "--objective",
    type=click.Choice([objective.value for objective in Objective]),
    default=Objective.MAXIMIZE_THROUGHPUT.value,
    show_default=True,
    help="Objective of the tasks whose experiments count.",
)
@click.option("--namespace", metavar="NAME", help="Of this namespace alone.")
@reading
@wide_option
def leaderboard(target: Target, model: str | None, objective: str, namespace: str | None) -> None:
    """List the best experiment of a MODEL for each engine, its version, GPUs and load.

    Without a MODEL the measured models are listed.
    """
    goal = next(member for member in Objective if member.value == objective)
    board = target.ask(lambda client: client.leaders(model, objective=goal, namespace=namespace))
    if model is None:
        none = "no experiment has been measured yet; `gpusteward new` makes a task"
        print_list(board, models_table(board), none, as_json=target.as_json)
        return
    none = f"no experiment of {model} was measured for {objective}; `gpusteward leaderboard` lists"
    print_list(board, leaders_table(board), f"{none} what was", as_json=target.as_json)


def models_table(board: LeaderList) -> Table:
    """Return a table with a row for each measured model."""
    rows = [
        [
            model.model,
            str(model.experiments),
            ", ".join(model.objectives),
            f"{model.measured_at:%F}",
        ]
        for model in board.models
    ]
    headings = ["model", "experiments", "objectives", "last measured"]
    return Table(headings, rows, numeric=frozenset({"experiments"}), important=headings[:3])


def leaders_table(board: LeaderList) -> Table:
    """Return a table with a row for each leader, the best first."""
    headings = [
        *("score", "experiment", "engine", "version", "GPUs", "load", "trust", "parameters"),
        *("of", "measured"),
    ]
    rows = [
        [
            number(leader.score, 4),
            f"{leader.task_name}#{leader.ordinal}",
            leader.engine,
            leader.version or leader.image_digest[:19] or UNKNOWN,
            f"{leader.gpus} x {', '.join(leader.gpu_models) or 'GPU'}",
            leader.load,
            trust_text(leader),
            settings_text(leader.parameters),
            str(leader.experiments),
            f"{leader.measured_at:%F}" if leader.measured_at else UNKNOWN,
        ]
        for leader in board.leaders
    ]
    return Table(
        headings,
        rows,
        numeric=frozenset({"score", "of"}),
        important=headings[:7],
        wrapped=frozenset({"trust", "parameters", "load"}),
        notes=["scores of the same load compare; the others do not"],
    )


def trust_text(leader: Leader) -> str:
    """Return how far a leader's score can be trusted: `confirmed, 3 runs, +-1.2 %`."""
    runs = f"{leader.runs} runs" if leader.runs > 1 else "1 run"
    spread = f", +-{leader.spread_percent:.2g} %" if leader.spread_percent is not None else ""
    parts = [("confirmed, " if leader.is_confirmed else "") + runs + spread]
    if leader.misses:
        parts.append(f"misses {', '.join(leader.misses)}")
    return "; ".join([*parts, *leader.doubts])
