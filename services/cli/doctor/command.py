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
    "--timeout",
    "timeout_seconds",
    type=SecondsRange(min=1, max=600),
    default=DEADLINE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Timeout of each check; raise it for slow hosts.",
)
def doctor(
    data_dir: Path | None,
    as_json: bool,
    unexplained: str | None,
    required: tuple[str, ...],
    timeout_seconds: float,
) -> None:
    """Look at what this host has, and say what to type for each thing that is missing.

    Ends within 5 seconds whatever hangs, unless --timeout says otherwise, and needs no platform
    and no root. Exit code 0 if everything that is
    needed is there, 7 if not; with --explain 0 if the error is a known one, 5 if not. What is
    needed: the system, Python, the data directory, the platform's servers and, on a host with
    NVIDIA GPUs, their driver; and what --require names.
    """
    if unexplained is not None:
        leave(_explain(unexplained, as_json=as_json))
    else:
        directory = (data_dir or default_data_dir()).absolute()
        leave(_examine(directory, required, timeout_seconds, as_json=as_json))


def _examine(
    data_dir: Path, required: Sequence[str], timeout_seconds: float, *, as_json: bool
) -> int:
    from services.cli.doctor.all_probes import all_probes
    from services.cli.doctor.examination import LAST_WORDS_SECONDS, examine
    from services.cli.doctor.host_facts import HostFacts

    probes = all_probes(required)
    # A program is given up on first, because that says more than a check given up on.
    facts = HostFacts(data_dir=data_dir, program_seconds=timeout_seconds - LAST_WORDS_SECONDS)
    checks = examine(probes, facts, deadline_seconds=timeout_seconds)
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
        other_text = f"; {len(to_do)} other things could be better" if to_do else ""
        click.echo(f"\neverything that is needed is there{other_text}")


def _explain(source: str, *, as_json: bool) -> int:
    matches = findings(_text(source))
    if as_json:
        print_json({"findings": [_finding(finding) for finding in matches]})
    elif not matches:
        click.echo("none of the known failures; the whole log may tell more than one line of it")
    else:
        for finding in matches:
            click.echo(f"{finding.failure.title} ({finding.failure.kind.value})")
            click.echo(f"  told by: {printable(finding.line)}")
            click.echo(f"  what to do: {finding.failure.hint}")
            click.echo(f"  an experiment that fails so {_repeats(finding.failure.kind)}")
    return 0 if matches else NOT_KNOWN_EXIT_CODE


def _text(source: str) -> str:
    """Return the text to explain: the end of stdin, of the file of that name, or the argument
    itself.
    """
    if source == "-":
        return sys.stdin.buffer.read()[-TEXT_LIMIT_BYTES:].decode(errors="replace")
    try:
        with Path(source).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - TEXT_LIMIT_BYTES))
            return file.read().decode(errors="replace")
    except (OSError, ValueError):
        return source


def _repeats(kind: FailureKind) -> str:
    rule = RULES[kind]
    if not rule.retries:
        return "is not repeated"
    times = "once" if rule.retries == 1 else f"up to {rule.retries} times"
    return f"is repeated {times}{', on another node if there is one' if rule.elsewhere else ''}"


def _finding(finding: Finding) -> dict[str, Any]:
    rule = RULES[finding.failure.kind]
    return {
        "kind": finding.failure.kind,
        "title": finding.failure.title,
        "line": finding.line,
        "hint": finding.failure.hint,
        "retries": rule.retries,
        "elsewhere": rule.elsewhere,
    }
