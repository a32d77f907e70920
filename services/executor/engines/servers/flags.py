"""Declared command-line flags: one declaration serves the parser and the engine table."""

import argparse
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum


class FlagKind(StrEnum):
    """How a flag's value is written."""

    INTEGER = "an integer"
    NUMBER = "a number"
    SWITCH = "true or false"
    CHOICE = "one of a list"


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag, under its hyphenated name. A switch has the forms `--name` and `--no-name`."""

    name: str
    kind: FlagKind
    help: str
    _: KW_ONLY
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        if self.kind is FlagKind.CHOICE:
            return f"one of {', '.join(self.choices)}"
        low = "" if self.minimum is None else f" >= {self.minimum:g}"
        high = "" if self.maximum is None else f"{' and' if low else ''} <= {self.maximum:g}"
        return f"{self.kind.value}{low}{high}"

    def render(self, value: object) -> list[str]:
        """The argv elements for `value`; numbers and switches may come as text.

        Raises ValueError if the value does not fit.
        """
        if self.kind is FlagKind.SWITCH:
            return [f"--{self.name}" if _switch(value) else f"--no-{self.name}"]
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError(repr(value))  # noqa: TRY004  # one error for every misfit
        return [f"--{self.name}", str(self.parse(str(value)))]

    def parse(self, text: str) -> int | float | str:
        """The value that `text` stands for. Raises ValueError naming the text."""
        if self.kind is FlagKind.CHOICE:
            if text.lower() not in self.choices:
                raise ValueError(repr(text))
            return text.lower()
        number = int(text) if self.kind is FlagKind.INTEGER else float(text)
        too_low = self.minimum is not None and not number >= self.minimum
        if too_low or (self.maximum is not None and not number <= self.maximum):
            raise ValueError(repr(text))
        return number

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
            help=f"{self.help} ({self.expected})",
        )

    def _parse_argument(self, text: str) -> int | float | str:
        try:
            return self.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"expected {self.expected}, got {text!r}") from error


def _switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    raise ValueError(repr(value))


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
