"""Commands that tell what would run on which GPU, before it does."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click
from msgspec.structs import replace

from schemas.errors import EXIT_CODE, ErrorCode
from schemas.gpus.checks import (
    CheckView,
    CudaCheck,
    CudaRules,
    DeviceConfigCheck,
    Finding,
    GpuMode,
    ModeCheck,
    PrecisionCheck,
    PrecisionRules,
    ResourceDefinition,
    Verdict,
)
from services.cli.config_map_files import read_config_maps, read_definitions, yaml_of
from services.cli.display.columns import UNKNOWN, Table
from services.cli.display.output import number, print_json, print_table, wide_option
from services.cli.failures import CommandFailed, leave
from services.cli.lazy_commands import LazyCommands
from services.cli.options import Target, reading
from shared.accelerator_rules.checks import answer
from shared.accelerator_rules.device_config import config_map_of
from shared.accelerator_rules.precision import precisions_of_model
from shared.accelerator_rules.verdicts import worst

if TYPE_CHECKING:
    from shared.client.http import StewardClient

WORKS: Final = frozenset({Verdict.SUPPORTED, Verdict.UNSTABLE, Verdict.CASE_BY_CASE})


hardware_rules_option: Final = click.option(
    "--rules",
    type=click.Choice([rules.value for rules in PrecisionRules]),
    default=PrecisionRules.HARDWARE.value,
    show_default=True,
    help="documented: the accelerator guide to the letter.",
)


@click.group(commands=LazyCommands({"services.cli.commands.gpus.check_cluster": ("cluster",)}))
def check() -> None:
    """Say by rule what would run on which GPU, and what to do where it would not.

    The exit code is 0 unless it is blocked.
    """


@check.command()
@click.argument("runtime")
@click.option("--driver", metavar="VERSION", help="Version of the driver, or of its CUDA.")
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in GpuMode]),
    default=GpuMode.PGPU.value,
    show_default=True,
    help="GPU sharing: whole, by GPU-Manager, by HAMi, by MPS.",
)
@click.option("--baseline", metavar="VERSION", help="CUDA of the virtual GPU's library.")
@click.option(
    "--rules",
    type=click.Choice([rules.value for rules in CudaRules]),
    default=CudaRules.STRICT.value,
    show_default=True,
    help="lenient: what NVIDIA's minor-version compatibility allows as well.",
)
@reading
@wide_option
def cuda(
    target: Target, runtime: str, driver: str | None, mode: str, baseline: str | None, rules: str
) -> None:
    """Check whether drivers serve a CUDA RUNTIME: the one given, else those of the platform's
    nodes.

    RUNTIME is a version, or what tells one: cu121, libcudart.so.12.4.127, an image's name and tag,
    the value of NVIDIA_REQUIRE_CUDA.
    """
    question = CudaCheck(
        runtime=runtime,
        driver=driver,
        mode=GpuMode(mode),
        baseline=baseline,
        rules=CudaRules(rules),
    )
    if driver is None:
        end_with(target, target.ask(lambda client: client.check(question)))
    else:
        end_with(target, answer(question, ()))


@check.command()
@click.argument("precision", required=False)
@click.option(
    "--model",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Directory of a model, whose config.json names the precisions.",
)
@click.option("--gpu", metavar="NAME", help="A GPU model, such as V100.")
@click.option(
    "--capability", metavar="X.Y", help="The GPU's compute capability, instead of its model."
)
@hardware_rules_option
@reading
@wide_option
def precision(
    target: Target,
    precision: str | None,
    directory: Path | None,
    gpu: str | None,
    capability: str | None,
    rules: str,
) -> None:
    """Check whether GPUs compute in a PRECISION: the one given, else those of the platform.

    PRECISION is a number format or a quantization, as engines name it: bfloat16, fp8, awq.
    """
    if (precision is None) == (directory is None):
        raise click.UsageError("expected a PRECISION, or --model")
    names = (precision,) if precision is not None else _of_model(directory or Path())
    questions = [
        PrecisionCheck(precision=name, gpu=gpu, capability=capability, rules=PrecisionRules(rules))
        for name in names
    ]

    async def ask(client: "StewardClient") -> list[CheckView]:
        return [await client.check(question) for question in questions]

    is_given = gpu is not None or capability is not None
    views = [answer(question, ()) for question in questions] if is_given else target.ask(ask)
    findings = tuple(finding for view in views for finding in view.findings)
    end_with(target, CheckView(verdict=worst(view.verdict for view in views), findings=findings))


def _of_model(directory: Path) -> tuple[str, ...]:
    precisions = precisions_of_model((directory / "config.json").read_bytes())
    if not precisions:
        raise CommandFailed(
            ErrorCode.BAD_REQUEST, f"{directory / 'config.json'} names no precision that is known"
        )
    return tuple(precision.name for precision in precisions)


@check.command()
@click.argument("counts", nargs=-1, required=True, metavar="RESOURCE=COUNT...")
@click.option("--gpu", metavar="NAME", help="A GPU model, such as V100.")
@click.option(
    "--capability", metavar="X.Y", help="The GPU's compute capability, instead of its model."
)
@click.option("--driver", metavar="VERSION", help="Version of the driver, or of its CUDA.")
@click.option("--kubernetes", metavar="VERSION", help="Version of the cluster, such as 1.34.")
@click.option("--mig", is_flag=True, help="The GPU is divided into MIG instances.")
@click.option("--mps-on-mig", is_flag=True, help="You run an MPS daemon for the instance.")
@hardware_rules_option
@reading
@wide_option
def resources(target: Target, counts: tuple[str, ...], **options: Any) -> None:
    """Check whether a container's limits ask for GPUs in a valid form; needs no platform.

    Forms are nvidia.com/gpu, tencent.com/vcuda-core with vcuda-memory, nvidia.com/mps-core and
    nvidia.com/mig-PROFILE; of cores 100 are one GPU.
    """
    question = ModeCheck(
        resources=dict(map(_parse_count, counts)),
        kubernetes_version=options["kubernetes"],
        rules=PrecisionRules(options["rules"]),
        **{name: options[name] for name in ("gpu", "capability", "driver", "mig", "mps_on_mig")},
    )
    end_with(target, answer(question, ()))


def _parse_count(text: str) -> tuple[str, int]:
    name, equals, count = text.partition("=")
    if not (name and equals and count.isdecimal()):
        raise click.UsageError(f"expected RESOURCE=COUNT, got {text!r}")
    return name, int(count)


@check.command("device-config")
@click.argument("files", type=click.File("rb"), nargs=-1, required=True, metavar="FILE...")
@reading
@wide_option
def device_config(target: Target, files: tuple[BinaryIO, ...]) -> None:
    """Check whether ConfigMaps in FILEs of YAML or JSON define custom devices; needs no platform.

    They are those named cf-crl-CUSTOMNAME-KEYNAME; a file may hold several documents, or a List.
    """
    config_maps = [config_map for file in files for config_map in read_config_maps(file)]
    if not config_maps:
        raise CommandFailed(ErrorCode.BAD_REQUEST, "expected a ConfigMap, found none")
    view = answer(
        DeviceConfigCheck(config_maps=tuple(config_map for _, config_map in config_maps)), ()
    )
    places = [place for place, _ in config_maps]
    view = replace(view, findings=tuple(_in_its_file(finding, places) for finding in view.findings))
    if target.as_json:
        print_json(view)
    else:
        if view.resources:
            print_table(resource_table(view.resources))
        for finding in view.findings:
            click.echo(f"{finding.subject}: {finding.message} ({finding.rule})")
    leave(0 if view.verdict in WORKS else EXIT_CODE[ErrorCode.BAD_REQUEST])


@check.command("new-device-config")
@click.argument("file", type=click.File("rb"))
def new_device_config(file: BinaryIO) -> None:
    """Print the ConfigMaps of the custom devices that FILE defines, in YAML for kubectl apply.

    FILE is YAML or JSON, one definition or a list of them: key (vendor.com/name), group and
    custom_name; if wanted default_value, description_en, description_zh, enabled, limits
    (disabled, required, optional) and requests (disabled, required, fromLimits).
    """
    resources = read_definitions(file)
    view = answer(DeviceConfigCheck(config_maps=tuple(map(config_map_of, resources))), ())
    if view.findings:
        first = view.findings[0]
        raise CommandFailed(ErrorCode.BAD_REQUEST, f"{first.subject}: {first.message}")
    click.echo(yaml_of(map(config_map_of, resources)), nl=False)


def _in_its_file(finding: Finding, places: list[str]) -> Finding:
    """A finding's subject begins with its ConfigMap's number: `$.config_maps[3].metadata...`."""
    number, _, path = finding.subject.removeprefix("$.config_maps[").partition("]")
    return replace(finding, subject=f"{places[int(number)]}: ${path}")


def resource_table(resources: Iterable[ResourceDefinition]) -> Table:
    """Custom devices by group."""
    return Table(
        headings=("group", "resource", "default", "limits", "requests", "enabled", "description"),
        rows=[
            (
                resource.group,
                resource.key,
                number(resource.default_value),
                resource.limits.value,
                resource.requests.value,
                "yes" if resource.enabled else "no",
                _description(resource) or UNKNOWN,
            )
            for resource in resources
        ],
        numeric=frozenset({"default"}),
        wrapped=frozenset({"description"}),
        important=("group", "resource", "default", "limits", "requests"),
    )


def _description(resource: ResourceDefinition) -> str:
    """Return the description in the reader's language, else in the other one."""
    locales = (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    is_chinese = next(filter(None, locales), "").startswith("zh")
    english, chinese = resource.description_en, resource.description_zh
    return (chinese or english) if is_chinese else (english or chinese)


def finding_table(findings: Iterable[Finding]) -> Table:
    """Return a table of findings by subject."""
    return Table(
        headings=("subject", "verdict", "what", "what to do"),
        rows=[
            (finding.subject, finding.verdict.value, finding.message, finding.action or "-")
            for finding in findings
        ],
        wrapped=frozenset({"what", "what to do"}),
        important=("verdict", "what", "what to do"),
    )


def end_with(target: Target, view: CheckView) -> None:
    """Print it; ends the command."""
    if target.as_json:
        print_json(view)
    elif len(view.findings) == 1 and not view.findings[0].subject:
        _print_finding(view.findings[0])
    else:
        print_table(finding_table(view.findings))
    leave(0 if view.verdict in WORKS else EXIT_CODE[ErrorCode.UNSUPPORTED])


def _print_finding(finding: Finding) -> None:
    click.echo(f"{finding.verdict.value}: {finding.message}")
    if finding.action:
        click.echo(f"what to do: {finding.action}")
    click.echo(f"rule: {finding.rule} ({finding.source})")
