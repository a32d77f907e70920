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
        """Without what is gone: an instance that is made there next is another one."""
        there = {MadeInstance(each.profile, each.start) for each in layout.instances}
        return replace(self, made=tuple(each for each in self.made if each in there))

    def shown_in(self, layout: MigLayout | None) -> MigLayout:
        """A layout as the driver has it, with what only the agent knows."""
        known = layout or MigLayout()
        return replace(
            known,
            change=self.change,
            refusal=self.refusal,
            instances=tuple(
                replace(each, made_by_agent=self.has_made(each)) for each in known.instances
            ),
        )


def overlaps(instance: MigInstance, start: int, size: int) -> bool:
    """Whether the instance has one of these slices."""
    return instance.start < start + size and start < instance.start + instance.size


def why_not(
    command: ChangeMig, layout: MigLayout, record: MigRecord, in_use: Callable[[MigInstance], str]
) -> str:
    """What keeps the agent from the change; empty if nothing does.

    What a change that was interrupted has done already is not in its way. `in_use` says by what an
    instance is.
    """
    option = next((each for each in layout.options if each.profile == command.profile), None)
    if option is None or command.start not in option.starts:
        return f"the driver can make no {command.profile} from slice {command.start} on"
    leaving = [each for each in layout.instances if each.start in command.remove_starts]
    for each in leaving:
        if not record.has_made(each):
            return f"the {each.profile} at slice {each.start} was not made by the agent"
        if use := in_use(each):
            return f"the {each.profile} at slice {each.start} {use}"
    is_repeated = record.pending == command.number
    staying = [
        each
        for each in layout.instances
        if each not in leaving and not (is_repeated and _is_wanted(each, command))
    ]
    return _no_room(command.start, option, staying)


def with_another(
    there: tuple[MigInstance, ...] | None,
    options: tuple[MigOption, ...],
    profile: str,
    start: int,
) -> tuple[MigInstance, ...]:
    """A GPU's instances once one is made, as a driver would have them; None is no GPU in MIG mode.

    Raises RefusedError.
    """
    option = next((each for each in options if each.profile == profile), None)
    if there is None or option is None or start not in option.starts:
        raise RefusedError(ErrorCode.NOT_FOUND, f"no {profile} can be made from slice {start} on")
    wanted = MigInstance(profile=profile, start=start, size=option.size)
    if wanted in there:
        return there
    if why := _no_room(start, option, list(there)):
        raise RefusedError(ErrorCode.CONFLICT, why)
    return tuple(sorted((*there, wanted), key=lambda each: each.start))


def _is_wanted(instance: MigInstance, command: ChangeMig) -> bool:
    return (instance.profile, instance.start) == (command.profile, command.start)


def _no_room(start: int, option: MigOption, staying: list[MigInstance]) -> str:
    for each in staying:
        if overlaps(each, start, option.size):
            return f"its slices are those of the {each.profile} at slice {each.start}"
    if sum(each.profile == option.profile for each in staying) >= option.limit:
        return f"there may be {option.limit} {option.profile} at most"
    return ""
