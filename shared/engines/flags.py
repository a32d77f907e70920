"""Declared command-line flags: one declaration serves the parser and the engine table."""

import argparse
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from schemas.executor.engine_rules import EngineParameter
from schemas.executor.engine_rules import ParameterKind as FlagKind
from shared.engines.values import expectation, read_value

__all__ = ["Flag", "FlagKind", "render", "server_parser"]


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag, under its hyphenate name. A switch has the forms `--name` and `--no-name`."""

    name: str
    kind: FlagKind
    help: str
    _: KW_ONLY
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def parameter(self) -> EngineParameter:
        """Return the parameter as a task may set it."""
        return EngineParameter(
            name=self.name,
            kind=self.kind,
            minimum=self.minimum,
            maximum=self.maximum,
            choices=self.choices,
        )

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Declare this flag on a parser; absent means None."""
        if self.kind is FlagKind.SWITCH:
            parser.add_argument(
                f"--{self.name}",
                action=argparse.BooleanOptionalAction,
                default=None,
                help=self.help,
            )
            return
        parser.add_argument(
            f"--{self.name}",
            type=self._parse_argument,
            default=None,
            help=f"{self.help} ({expectation(self.parameter)})",
        )

    def _parse_argument(self, text: str) -> int | float | str:
        try:
            return read_value(self.parameter, text)
        except ValueError as error:
            expected_text = expectation(self.parameter)
            raise argparse.ArgumentTypeError(f"expected {expected_text}, got {text!r}") from error


def render(parameter: EngineParameter, value: object) -> list[str]:
    """The argv elements for a value that fits. Raises ValueError for any other."""
    read = read_value(parameter, value)
    if isinstance(read, bool):
        return [f"--{parameter.name}" if read else f"--no-{parameter.name}"]
    return [f"--{parameter.name}", str(read)]


def server_parser(program: str, description: str, flags: Sequence[Flag]) -> argparse.ArgumentParser:
    """A parser with the address flags that every server of ours has, and `flags`."""
    parser = argparse.ArgumentParser(prog=program, description=description, allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 takes a free one")
    parser.add_argument(
        "--alias", default=None, help="name of the model in /v1/models; default: the model's own"
    )
    for flag in flags:
        flag.add_to(parser)
    return parser
