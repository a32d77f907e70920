"""What a person chooses among before a task is written: engines, and their flags."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from schemas.executor.engine_rules import EngineParameter, ParameterKind
from schemas.gateway.engines import EngineChoice, EngineFlag
from schemas.task.task_file import DeploymentMode
from shared.engines.allow_list import Bounds, Form, Text
from shared.engines.profile import EngineProfile
from shared.engines.values import expectation


def engine_choice(profile: EngineProfile) -> EngineChoice:
    """Return an engine as a first task of it begins, with every flag that it may be given."""
    flags = {flag.name: flag for flag in _flags(profile)}
    noted = [flags[name] for name in profile.flag_notes if name in flags]
    further = sorted(
        (flag for name, flag in flags.items() if name not in profile.flag_notes),
        key=lambda flag: (not flag.help, flag.name),
    )
    starter = profile.starter
    parameters: dict[str, Any] = yaml.safe_load(starter.parameters)
    return EngineChoice(
        name=profile.name,
        title=profile.title,
        simulated=profile.simulated,
        version=profile.allow_list.version if profile.allow_list is not None else "",
        model=starter.model,
        deployment_mode=DeploymentMode.PROCESS if starter.is_small else DeploymentMode.DOCKER,
        parameters=parameters,
        flags=(*noted, *further),
    )


def _flags(profile: EngineProfile) -> Iterator[EngineFlag]:
    if profile.allow_list is not None:
        for name, form in profile.allow_list.forms.items():
            yield _flag(profile, name, form_text(form), form if isinstance(form, tuple) else ())
    for flag in profile.server.flags if profile.server is not None else ():
        text = expectation(flag.parameter)
        yield _flag(profile, flag.name, text, flag.choices, flag.help)


def _flag(
    profile: EngineProfile, name: str, form: str, choices: tuple[str, ...], help_text: str = ""
) -> EngineFlag:
    note = profile.flag_notes.get(name)
    return EngineFlag(
        name=name,
        form=form,
        help=note.help if note is not None else help_text,
        default=note.default if note is not None else "",
        choices=choices,
    )


def form_text(form: Form) -> str:
    """Return in words what a value of this form may be."""
    if isinstance(form, ParameterKind):
        return expectation(EngineParameter(name="", kind=form))
    if isinstance(form, Bounds):
        return f"a number from {form.low:g} to {form.high:g}"
    if isinstance(form, tuple):
        return f"one of {', '.join(form)}"
    if isinstance(form, Text):
        return form.value
    assert isinstance(form, Mapping)  # noqa: S101  # the last of the forms
    return f"an object of {', '.join(form)}"
