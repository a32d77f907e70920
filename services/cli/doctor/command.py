"""`doctor`: what this host has, and what a failure means."""

import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from schemas.errors import EXIT_CODE, ErrorCode
from schemas.executor.attempts import FailureKind
from services.cli.display.columns import Table
from services.cli.display.output import print_json, print_table
from services.cli.doctor.check import Check, printable
from services.cli.doctor.examination import DEADLINE_SECONDS
from services.cli.failures import leave
from services.cli.option_types import SecondsRange
from services.cli.options import data_dir_option
from shared.failures import RULES, Finding, findings
from shared.paths import default_data_dir

TEXT_LIMIT_BYTES: Final = 4 << 20
NEEDED_MISSING_EXIT_CODE: Final = EXIT_CODE[ErrorCode.UNSUPPORTED]
NOT_KNOWN_EXIT_CODE: Final = EXIT_CODE[ErrorCode.NOT_FOUND]


@click.command()
@data_dir_option
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--explain",
    "unexplained",
    metavar="TEXT",
    help="Say what an error means instead; - reads it, or a whole log, from stdin, and the name "
    "of a file from there.",
)
@click.option(
    "--require",
    "required",
    metavar="CHECK",
    multiple=True,
    help="Count this check as needed, such as docker; may be given again.",
)
@click.option(
    "--patience",
    "patience_seconds",
    type=SecondsRange(min=1, max=600),
    default=DEADLINE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long a check may take, for hosts that are slow and not hung.",
)
def doctor(
    data_dir: Path | None,
    as_json: bool,
    unexplained: str | None,
    required: tuple[str, ...],
    patience_seconds: float,
) -> None:
    """Look at what this host has, and say what to type for each thing that is missing.

    Ends within 5 seconds whatever hangs, unless --patience says otherwise, and needs no platform
    and no root. Exit code 0 if everything that is
    needed is there, 7 if not; with --explain 0 if the error is a known one, 5 if not. What is
    needed: the system, Python, the data directory, the platform's servers and, on a host with
    NVIDIA GPUs, their driver; and what --require names.
    """
    if unexplained is not None:
        leave(_explain(unexplained, as_json=as_json))
    else:
        directory = (data_dir or default_data_dir()).absolute()
        leave(_examine(directory, required, patience_seconds, as_json=as_json))


def _examine(
    data_dir: Path, required: Sequence[str], patience_seconds: float, *, as_json: bool
) -> int:
    from services.cli.doctor.all_probes import all_probes
    from services.cli.doctor.examination import LAST_WORDS_SECONDS, examine
    from services.cli.doctor.host_facts import HostFacts

    probes = all_probes(required)
    # A program is given up on first, because that says more than a check given up on.
    facts = HostFacts(data_dir=data_dir, program_seconds=patience_seconds - LAST_WORDS_SECONDS)
    checks = examine(probes, facts, deadline_seconds=patience_seconds)
    failing = [check for check in checks if check.fails]
    if as_json:
        print_json({"host": platform.node(), "is_fit": not failing, "checks": checks})
    else:
        _print(checks)
    sys.stdout.flush()
    return NEEDED_MISSING_EXIT_CODE if failing else 0


def _print(checks: Sequence[Check]) -> None:
    rows = [[check.name, check.state.value, check.found] for check in checks]
    print_table(Table(["check", "state", "found"], rows, wrapped=frozenset({"found"})))
    to_do = [check for check in checks if check.fix]
    for check in to_do:
        click.echo(f"\n{check.name} ({check.state.value}): {check.why}")
        click.echo(f"  fix: {check.fix}")
    failing = [check.name for check in checks if check.fails]
    if failing:
        click.echo(f"\nneeded, and missing or broken: {', '.join(failing)}")
    else:
        others = f"; {len(to_do)} other things could be better" if to_do else ""
        click.echo(f"\neverything that is needed is there{others}")


def _explain(given: str, *, as_json: bool) -> int:
    found = findings(_text(given))
    if as_json:
        print_json({"findings": [_finding(each) for each in found]})
    elif not found:
        click.echo("none of the known failures; the whole log may tell more than one line of it")
    else:
        for each in found:
            click.echo(f"{each.failure.title} ({each.failure.kind.value})")
            click.echo(f"  told by: {printable(each.line)}")
            click.echo(f"  what to do: {each.failure.hint}")
            click.echo(f"  an experiment that fails so {_repeats(each.failure.kind)}")
    return 0 if found else NOT_KNOWN_EXIT_CODE


def _text(given: str) -> str:
    """What is to be explained: the end of stdin, of the file of that name, or the text itself."""
    if given == "-":
        return sys.stdin.buffer.read()[-TEXT_LIMIT_BYTES:].decode(errors="replace")
    try:
        with Path(given).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - TEXT_LIMIT_BYTES))
            return file.read().decode(errors="replace")
    except (OSError, ValueError):
        return given


def _repeats(kind: FailureKind) -> str:
    rule = RULES[kind]
    if not rule.retries:
        return "is not repeated"
    times = "once" if rule.retries == 1 else f"up to {rule.retries} times"
    return f"is repeated {times}{', on another node if there is one' if rule.elsewhere else ''}"


def _finding(found: Finding) -> dict[str, Any]:
    rule = RULES[found.failure.kind]
    return {
        "kind": found.failure.kind,
        "title": found.failure.title,
        "line": found.line,
        "hint": found.failure.hint,
        "retries": rule.retries,
        "elsewhere": rule.elsewhere,
    }
