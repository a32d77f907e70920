"""What all kinds of objects have, and lists of them."""

from datetime import datetime
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class ApiObject(Struct, frozen=True, rename="camel"):
    """What the API leaves out is empty here."""


class Metadata(ApiObject, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}


class AnnotatedMetadata(Metadata, frozen=True):
    """Beside it annotations, by which plugins register GPUs."""

    annotations: dict[str, str] = {}


class Owner(ApiObject, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class MetadataDetails(AnnotatedMetadata, frozen=True):
    """Beside it who keeps the object, and since when it is there or is being deleted."""

    owner_references: tuple[Owner, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


class NamedObject(ApiObject, frozen=True):
    """Any object, as far as its metadata says."""

    metadata: MetadataDetails


class ConfigMap(ApiObject, frozen=True):
    metadata: Metadata
    data: dict[str, str] = {}


class Condition(ApiObject, frozen=True):
    type: str = ""
    status: str = ""


class ConditionDetails(Condition, frozen=True):
    reason: str = ""
    message: str = ""


class ObjectList(Struct, Generic[T], frozen=True):
    """The API's answer to a question for all objects of a kind."""

    items: tuple[T, ...] = ()
