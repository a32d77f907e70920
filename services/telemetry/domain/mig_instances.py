"""Which MIG instances the agent has made, and why it does not change what a GPU is divided into."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.gpus.mig import ChangeMig, MigInstance, MigLayout, MigOption
from shared.errors import RefusedError


class MadeInstance(Struct, frozen=True):
    """An instance, by its place in its GPU."""

    profile: str
    start: int


class MigRecord(Struct, frozen=True, kw_only=True):
    """What the agent did to a GPU. `change` is the last that is over, `pending` one that is not."""

    device_uuid: str
    change: int = 0
    refusal: str = ""
    pending: int | None = None
    made: tuple[MadeInstance, ...] = ()

    def has_made(self, instance: MigInstance) -> bool:
        return MadeInstance(instance.profile, instance.start) in self.made

    def present(self, layout: MigLayout) -> "MigRecord":
        """Return the record without what is gone: an instance made there next is another one."""
        present = {MadeInstance(instance.profile, instance.start) for instance in layout.instances}
        return replace(
            self,
            made=tuple(made_instance for made_instance in self.made if made_instance in present),
        )

    def merge_into(self, layout: MigLayout | None) -> MigLayout:
        """A layout as the driver has it, with what only the agent knows."""
        known_layout = layout or MigLayout()
        return replace(
            known_layout,
            change=self.change,
            refusal=self.refusal,
            instances=tuple(
                replace(instance, made_by_agent=self.has_made(instance))
                for instance in known_layout.instances
            ),
        )


def overlaps(instance: MigInstance, start: int, size: int) -> bool:
    """Return True if the instance has one of these slices."""
    return instance.start < start + size and start < instance.start + instance.size


def why_not(
    command: ChangeMig, layout: MigLayout, record: MigRecord, in_use: Callable[[MigInstance], str]
) -> str:
    """Say what keeps the agent from the change; empty if nothing does.

    What an interrupted change has done already is not in its way. `in_use` says by what an instance
    is used.
    """
    option = next(
        (candidate for candidate in layout.options if candidate.profile == command.profile), None
    )
    if option is None or command.start not in option.starts:
        return f"the driver can make no {command.profile} from slice {command.start} on"
    leaving = [instance for instance in layout.instances if instance.start in command.remove_starts]
    for instance in leaving:
        if not record.has_made(instance):
            return f"the {instance.profile} at slice {instance.start} was not made by the agent"
        if use := in_use(instance):
            return f"the {instance.profile} at slice {instance.start} {use}"
    is_repeated = record.pending == command.number
    staying = [
        instance
        for instance in layout.instances
        if instance not in leaving and not (is_repeated and _is_wanted(instance, command))
    ]
    return _no_room(command.start, option, staying)


def with_another(
    instances: tuple[MigInstance, ...] | None,
    options: tuple[MigOption, ...],
    profile: str,
    start: int,
) -> tuple[MigInstance, ...]:
    """A GPU's instances once one is made, as a driver would have them; None is no GPU in MIG mode.

    Raises RefusedError.
    """
    option = next((candidate for candidate in options if candidate.profile == profile), None)
    if instances is None or option is None or start not in option.starts:
        raise RefusedError(ErrorCode.NOT_FOUND, f"no {profile} can be made from slice {start} on")
    new_instance = MigInstance(profile=profile, start=start, size=option.size)
    if new_instance in instances:
        return instances
    if why := _no_room(start, option, list(instances)):
        raise RefusedError(ErrorCode.CONFLICT, why)
    return tuple(sorted((*instances, new_instance), key=lambda instance: instance.start))


def _is_wanted(instance: MigInstance, command: ChangeMig) -> bool:
    return (instance.profile, instance.start) == (command.profile, command.start)


def _no_room(start: int, option: MigOption, staying: list[MigInstance]) -> str:
    for instance in staying:
        if overlaps(instance, start, option.size):
            return f"its slices are those of the {instance.profile} at slice {instance.start}"
    if sum(instance.profile == option.profile for instance in staying) >= option.limit:
        return f"there may be {option.limit} {option.profile} at most"
    return ""
