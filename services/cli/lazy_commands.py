"""Commands of a group whose modules are imported when they are looked up."""

from collections import UserDict
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import click


class LazyCommands(UserDict[str, Any]):
    """By name, of these functions in modules; those that `group.command` adds are there too."""

    def __init__(self, functions: Mapping[str, Iterable[str]]) -> None:
        super().__init__()
        for module, names in functions.items():
            self.data |= {name_of(name): (module, name) for name in names}

    def __getitem__(self, name: str) -> click.Command:
        if isinstance(self.data[name], tuple):
            module, function = self.data[name]
            self.data[name] = getattr(import_module(module), function)
        command: click.Command = self.data[name]
        return command


def name_of(function: str) -> str:
    """Return the command's name as click derives it from its function."""
    return function.removesuffix("_command").replace("_", "-")
