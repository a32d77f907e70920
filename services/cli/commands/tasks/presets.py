"""Saved parameters that tasks take by name."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO, Final

import click
import msgspec

from schemas.orchestrator.presets import (
    ExistingPreset,
    MergedPresets,
    Preset,
    PresetFile,
    PresetParameters,
    PresetView,
)
from schemas.task.task_file import PresetMerge
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import print_json, print_list, wide_option
from services.cli.json_files import read_json
from services.cli.options import Target, confirm, reading, with_target

if TYPE_CHECKING:
    from shared.client.http import StewardClient

in_namespace: Final = click.option(
    "--namespace", metavar="NAME", help="Namespace of the presets [default: the token's]."
)
existing_option: Final = click.option(
    "--existing",
    type=click.Choice([existing_preset.value for existing_preset in ExistingPreset]),
    default=ExistingPreset.REFUSE.value,
    show_default=True,
    help="Treatment of an existing preset with the same name and other content.",
)


@click.group()
def preset() -> None:
    """Saved parameters that tasks take by name (`presets`)."""


@preset.command("list")
@in_namespace
@reading
@wide_option
def list_presets(target: Target, namespace: str | None) -> None:
    """List presets: those that were saved, and those of this release."""
    presets = target.ask(lambda client: client.presets(namespace))
    none = "there is no preset here yet; `gpusteward preset save` makes one"
    print_list({"presets": presets}, presets_table(presets), none, as_json=target.as_json)


@preset.command()
@click.argument("name", metavar="PRESET")
@in_namespace
@reading
def show(target: Target, name: str, namespace: str | None) -> None:
    """Show one preset."""
    shown_preset = target.ask(lambda client: client.preset(name, namespace=namespace))
    if target.as_json:
        print_json(shown_preset)
        return
    click.echo(f"{shown_preset.name}, {_origin(shown_preset)}")
    if shown_preset.description:
        click.echo(shown_preset.description)
    click.echo(f"engine: {shown_preset.engine or 'any'}")
    _print_parameters(shown_preset.parameters)


@preset.command()
@click.argument("name", metavar="PRESET")
@click.argument("file", type=click.File("rb"))
@existing_option
@in_namespace
@with_target
def save(target: Target, name: str, file: BinaryIO, existing: str, namespace: str | None) -> None:
    """Save the `parameters` of a FILE (`-` is standard input) under a name.

    Beside them the file may have an `engine` and a `description`.
    """
    content = msgspec.json.decode(read_json(file), type=dict[str, msgspec.Raw])
    document = msgspec.json.encode({"presets": [{**content, "name": name}]})

    async def ask(client: "StewardClient") -> PresetView:
        await client.save_presets(document, existing=ExistingPreset(existing), namespace=namespace)
        return await client.preset(name, namespace=namespace)

    click.echo(f"preset {name} saved, {_origin(target.ask(ask))}")


@preset.command("import")
@click.argument("file", type=click.File("rb"))
@existing_option
@in_namespace
@with_target
def import_presets(target: Target, file: BinaryIO, existing: str, namespace: str | None) -> None:
    """Save the presets of a FILE that `export` wrote; all of them, or where one is refused none."""
    document = read_json(file)
    target.ask(
        lambda client: client.save_presets(
            document, existing=ExistingPreset(existing), namespace=namespace
        )
    )
    names = [preset.name for preset in msgspec.json.decode(document, type=PresetFile).presets]
    click.echo(f"presets {', '.join(names)} are saved")


@preset.command("export")
@click.argument("names", metavar="[PRESET]...", nargs=-1)
@in_namespace
@with_target
def export_presets(target: Target, names: Sequence[str], namespace: str | None) -> None:
    """Print presets as the file that `import` reads; without a name all that were saved."""

    async def ask(client: "StewardClient") -> list[PresetView]:
        if names:
            return [await client.preset(name, namespace=namespace) for name in names]
        return [
            preset for preset in await client.presets(namespace) if preset.namespace is not None
        ]

    presets = target.ask(ask)
    if not presets:
        raise click.UsageError("no preset is saved here")
    print_json(
        PresetFile(
            presets=tuple(
                Preset(
                    name=preset.name,
                    description=preset.description,
                    engine=preset.engine,
                    parameters=preset.parameters,
                )
                for preset in presets
            )
        )
    )


@preset.command()
@click.argument("names", metavar="PRESET...", nargs=-1, required=True)
@click.option(
    "--how",
    type=click.Choice([preset_merge.value for preset_merge in PresetMerge]),
    default=PresetMerge.LAST_WINS.value,
    show_default=True,
    help="Treatment of a parameter that several presets set.",
)
@click.option("--save", "save_as", metavar="NAME", help="Save the result under this name.")
@existing_option
@in_namespace
@reading
def merge(
    target: Target,
    names: Sequence[str],
    how: str,
    save_as: str | None,
    existing: str,
    namespace: str | None,
) -> None:
    """Show what presets are together, and where they conflict."""

    async def ask(client: "StewardClient") -> MergedPresets:
        merged_presets = await client.merge_presets(names, PresetMerge(how), namespace=namespace)
        if save_as is not None:
            made = Preset(
                name=save_as,
                description=f"{', '.join(merged_presets.presets)}, merged: {how}",
                engine=merged_presets.engine,
                parameters=merged_presets.parameters,
            )
            await client.save_presets(
                PresetFile(presets=(made,)),
                existing=ExistingPreset(existing),
                namespace=namespace,
            )
        return merged_presets

    merged_presets = target.ask(ask)
    if target.as_json:
        print_json(merged_presets)
        return
    _print_parameters(merged_presets.parameters)
    for conflict in merged_presets.conflicts:
        click.echo(conflict.outcome)
    if save_as is not None:
        click.echo(f"preset {save_as} saved")


@preset.command()
@click.argument("name", metavar="PRESET")
@click.option("--yes", is_flag=True, help="Do not ask first.")
@in_namespace
@with_target
def delete(target: Target, name: str, yes: bool, namespace: str | None) -> None:
    """Delete a saved preset; tasks that took it keep its parameters."""
    if not yes:
        confirm(f"Delete preset {name}?")
    target.ask(lambda client: client.delete_preset(name, namespace=namespace))
    click.echo(f"preset {name} deleted")


def presets_table(presets: Sequence[PresetView]) -> Table:
    """Return a table with a row for each preset."""
    headings = ["preset", "namespace", "revision", "engine", "parameters", "description"]
    rows = [
        [
            preset.name,
            preset.namespace or "of this release",
            str(preset.revision) if preset.namespace else UNKNOWN,
            preset.engine or "any",
            ", ".join(preset.parameters),
            preset.description,
        ]
        for preset in presets
    ]
    return Table(
        headings,
        rows,
        numeric=frozenset({"revision"}),
        important=headings[:4],
        wrapped=frozenset({"parameters", "description"}),
    )


def _origin(preset: PresetView) -> str:
    if preset.namespace is None:
        return "of this release"
    return f"revision {preset.revision} of namespace {preset.namespace}"


def _print_parameters(parameters: PresetParameters) -> None:
    for name, values in parameters.items():
        click.echo(f"  {name}: {msgspec.json.encode(values).decode()}")
