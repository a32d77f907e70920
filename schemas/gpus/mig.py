"""MIG instances that an agent makes and removes: what a GPU has room for, and the command."""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from schemas.base import Command, Count, DeviceUuid, Mebibytes, NodeId
from schemas.gpus.gpu_request import MigProfile

ChangeNumber = Annotated[int, Meta(ge=1)]


class MigOption(Struct, frozen=True, kw_only=True):
    """A kind of instance that the driver can make: `size` memory slices, from one of `starts` on.

    There are never more than `limit` of a profile at once.
    """

    profile: MigProfile
    size: Annotated[int, Meta(ge=1)]
    starts: tuple[Count, ...]
    limit: Count
    memory_mb: Mebibytes | None = None


class MigInstance(Struct, frozen=True, kw_only=True):
    """A GPU instance. `device_uuids` are its devices: none if it is half made, several if another
    tool divided it further. Only what is `made_by_agent` is ever removed by it.
    """

    profile: MigProfile
    start: Count
    size: Annotated[int, Meta(ge=1)]
    device_uuids: tuple[DeviceUuid, ...] = ()
    made_by_agent: bool = False


class MigLayout(Struct, frozen=True, kw_only=True):
    """What a GPU in MIG mode is divided into, and may be: without `options` its agent makes none.

    `change` is the number of the last `ChangeMig` that is over, with `refusal` not as asked.
    """

    options: tuple[MigOption, ...] = ()
    instances: tuple[MigInstance, ...] = ()
    change: Count = 0
    refusal: str = ""


class ChangeMig(Command, frozen=True, kw_only=True, tag="telemetry.change_mig"):
    """Remove the instances at `remove_starts` and make one of `profile` at `start`.

    `number` grows from one change of a device to the next: an older one changes nothing. Accepted
    means that it is over, done or not; the next inventory says which (`MigLayout.change`).
    """

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId
    device_uuid: DeviceUuid
    number: ChangeNumber
    profile: MigProfile
    start: Count
    remove_starts: tuple[Count, ...] = ()
