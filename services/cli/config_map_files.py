"""ConfigMaps and definitions of custom devices in files of YAML or JSON, each with its place."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import msgspec
import yaml

from schemas.errors import ErrorCode
from schemas.gpus.checks import ResourceDefinition
from services.cli.failures import CommandFailed
from shared.accelerator_rules.device_config import config_map_of
from shared.problems import explain_validation_error


def read_importable(file: BinaryIO) -> Iterator[tuple[str, dict[str, Any]]]:
    """ConfigMaps, or those of definitions, each with its place. Raises CommandFailed."""
    documents = read_documents(file)
    first = documents[0] if documents else None
    if isinstance(first, list) or (isinstance(first, dict) and "kind" not in first):
        for number, definition in enumerate(_definitions(file.name, first), start=1):
            yield f"{file.name}, definition {number}", config_map_of(definition)
    else:
        yield from _config_maps(file.name, documents)


def read_config_maps(file: BinaryIO) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each object and its place; a `List` is the objects in it. Raises CommandFailed."""
    return _config_maps(file.name, read_documents(file))


def _config_maps(file_name: str, documents: Sequence[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for place, document in enumerate(documents, start=1):
        if document is None:  # between two lines of ---
            continue
        name = file_name if len(documents) == 1 else f"{file_name}, document {place}"
        items = document.get("items") if isinstance(document, dict) else None
        if isinstance(items, list):
            yield from (
                _object(f"{name}, item {number}", item) for number, item in enumerate(items, 1)
            )
        else:
            yield _object(name, document)


def read_definitions(file: BinaryIO) -> list[ResourceDefinition]:
    """Raises CommandFailed with the place of what is none."""
    return _definitions(file.name, next(iter(read_documents(file)), None))


def _definitions(file_name: str, document: Any) -> list[ResourceDefinition]:
    several = document if isinstance(document, list) else [document]
    try:
        return msgspec.convert(several, list[ResourceDefinition])
    except msgspec.ValidationError as error:
        path, sentence = explain_validation_error(error, list[ResourceDefinition])
        raise CommandFailed(ErrorCode.BAD_REQUEST, f"{file_name}: {sentence} at {path}") from error


def yaml_of(config_maps: Iterable[dict[str, Any]]) -> str:
    """Return a YAML document for each, with quotes around texts that look like another type."""
    text: str = yaml.safe_dump_all(
        config_maps, allow_unicode=True, sort_keys=False, explicit_start=True
    )
    return text


def read_documents(file: BinaryIO) -> list[Any]:
    """Return the documents of a file, None between two lines of ---. Raises CommandFailed."""
    try:
        return list(yaml.safe_load_all(file.read().decode()))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise CommandFailed(
            ErrorCode.BAD_REQUEST, f"{file.name}: this is neither YAML nor JSON: {error}"
        ) from error


def _object(place: str, document: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(document, dict):
        raise CommandFailed(
            ErrorCode.BAD_REQUEST, f"{place}: expected a ConfigMap, got {type(document).__name__}"
        )
    return place, document
