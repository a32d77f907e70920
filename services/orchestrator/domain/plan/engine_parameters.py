"""A task's typed blocks and parameters, by its engine's names."""

from collections.abc import Mapping
from typing import Any

from msgspec import json

from schemas.errors import ErrorCode
from schemas.executor.engine_rules import EngineRules
from schemas.task.modality import Modality
from services.orchestrator.domain.configurations import Point
from services.orchestrator.domain.installation.missing import Missing, missing_field
from services.orchestrator.domain.plan.engine_fields import translate_fields
from shared.engines.check import check_parameters
from shared.engines.task_fields import MODALITY
from shared.errors import RefusedError
from shared.gpu.sizing import degree_named, hyphenate


def engine_parameters(
    engine: str,
    rules: EngineRules,
    point: Point,
    quantized_by: str | None,
    modality: Modality = Modality.TEXT,
) -> tuple[dict[str, Any], list[Missing], list[str]]:
    """Return the engine's parameters, what the engine cannot take, and notes.

    With them are those by which it answers requests of the benchmark's `modality`.

    Raises RefusedError for a bad parameter.
    """
    parameters: dict[str, Any] = {}
    unknown: list[Missing] = []
    notes: list[str] = []
    for block, fields in (("quant_config", point.quant), ("parallel_config", point.parallel)):
        accepted = translate_fields(rules, block, fields)
        for flag, value in accepted.parameters.items():
            name = _find_own_spelling(flag, point.parameters)
            if quantized_by is not None and (flag, value) == ("quantization", "fp8"):
                notes.append(
                    f"{block}: no {flag} {value}, the model is quantized by {quantized_by}"
                )
            elif name is None:
                parameters[flag] = value
            else:
                notes.append(f"parameters.{name} takes the place of {flag!r} of {block}")
        unknown += [missing_field(engine, block, *refusal) for refusal in accepted.unknown]
        notes += accepted.notes
    if not modality.has_tokens:
        flags, unserved, flag_notes = _find_modality_flags(
            engine, rules, modality, point.parameters
        )
        parameters |= flags
        unknown += unserved
        notes += flag_notes
    own_parameters = _in_the_engines_words(rules, point.parameters)
    check_parameters(engine, rules, own_parameters)
    return {**parameters, **own_parameters}, unknown, notes


def _find_modality_flags(
    engine: str, rules: EngineRules, modality: Modality, own_parameters: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Missing], list[str]]:
    """Return what the engine needs to answer such requests, unless the task says it itself; nothing
    of an engine that is not known.
    """
    if not rules.task_fields:
        return {}, [], []
    rule = rules.task_fields.get(MODALITY)
    flags = rule.values.get(modality.value) if rule is not None else None
    if rule is None or flags is None:
        sentence = f"engine {engine!r} is not known to answer {modality.value} here"
        return {}, [Missing(path="$.benchmark.traffic_scenarios", sentence=sentence)], []
    if any(hyphenate(name) in rule.instead_of for name in own_parameters):
        return {}, [], []
    if flags:
        words = ", ".join(f"{name} {json.encode(value).decode()}" for name, value in flags.items())
        return dict(flags), [], [f"{engine} gets {words}, as it answers {modality.value}"]
    return {}, [], [f"{modality.value}: {rule.note}"] if rule.note else []


def _in_the_engines_words(rules: EngineRules, parameters: dict[str, Any]) -> dict[str, Any]:
    """Degrees of parallelism have many spellings, of which an engine knows its own."""
    by_spelling: dict[str, Any] = {}
    for name, value in parameters.items():
        rule = rules.task_fields.get(degree_named(name) or "")
        flag = rule.flag if rule is not None and rule.flag is not None else hyphenate(name)
        spelling = name if flag == hyphenate(name) else flag
        if spelling in by_spelling:
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"{name!r} is given twice, in two spellings",
                path=f"$.parameters.{name}",
            )
        by_spelling[spelling] = value
    return by_spelling


def _find_own_spelling(flag: str, parameters: dict[str, Any]) -> str | None:
    """The parameter by which the user sets the same himself."""
    meaning = degree_named(flag) or flag
    return next(
        (name for name in parameters if meaning in {degree_named(name), hyphenate(name)}), None
    )
