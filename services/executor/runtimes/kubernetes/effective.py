"""Whether a bound pod runs what was intended: nothing between may have changed it in silence.

OME rewrites degrees of parallelism for some accelerators, webhooks add variables, policies change
images: a measurement would be another configuration's.
"""

import shlex
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

from services.executor.runtimes.kubernetes.kinds import Container, Object, Pod
from shared.kubernetes.ome import ENGINE_CONTAINER

# OME's own, which its catalogue's runtimes name in their flags, and no engine reads.
_TOLERATED: Final = frozenset({"MODEL_PATH", "PARALLELISM_SIZE"})
_SHOWN: Final = 6


def differences(pod: Pod, intended: Object, node_name: str | None) -> tuple[str, ...]:
    """What is otherwise than intended, a sentence each; empty if nothing is.

    `node_name` is the node that was chosen, None where the cluster chooses.
    """
    container = next((c for c in pod.spec.containers if c.name == intended["name"]), None)
    if container is None:
        names = ", ".join(each.name for each in pod.spec.containers)
        return (f"the pod has no container {ENGINE_CONTAINER!r}, but {names}",)
    bound_to = pod.spec.node_name
    return (
        *_changed("command", intended.get("command", ()), container.command),
        *_changed("args", intended["args"], container.args),
        *_environment(intended, container),
        *_image(intended, container),
        *_resources(intended, container),
        *(
            [f"it runs on node {bound_to}, chosen was {node_name}"]
            if node_name is not None and bound_to and bound_to != node_name
            else []
        ),
    )


def _changed(what: str, intended: Sequence[str], found: Sequence[str]) -> Iterator[str]:
    if tuple(intended) == tuple(found):
        return
    steps = SequenceMatcher(None, list(intended), list(found), autojunk=False).get_opcodes()
    for number, (how, begin, end, found_begin, found_end) in enumerate(
        step for step in steps if step[0] != "equal"
    ):
        if number == _SHOWN:
            yield f"{what}: and more"
            return
        # The flag before a changed value says which it is.
        flag = intended[begin - 1 : begin] if how == "replace" and begin else ()
        before = _shown((*flag, *intended[begin:end]))
        after = _shown((*flag, *found[found_begin:found_end]))
        if how == "insert":
            yield f"{what}: {after} was added"
        elif how == "delete":
            yield f"{what}: {before} was left out"
        else:
            yield f"{what}: {before} became {after}"


def _environment(intended: Object, container: Container) -> Iterator[str]:
    wanted = {each["name"]: each["value"] for each in intended["env"]}
    found = {each.name: each for each in container.env}
    for name, value in wanted.items():
        variable = found.get(name)
        if variable is None:
            yield f"env: {name} was left out"
        elif variable.value_from is not None or variable.value != value:
            yield f"env: {_shown((f'{name}={value}',))} became {_of(variable.value)}"
    yield from (
        f"env: {name} was added" for name in found if name not in wanted and name not in _TOLERATED
    )
    if container.env_from:
        yield "env: variables from a ConfigMap or Secret were added"


def _image(intended: Object, container: Container) -> Iterator[str]:
    """The same under a registry before it, as a mirror's, is the same image."""
    wanted, found = intended["image"], container.image
    if found != wanted and not found.endswith(f"/{wanted}"):
        yield f"image: {wanted} became {found}"


def _resources(intended: Object, container: Container) -> Iterator[str]:
    wanted = intended["resources"].get("limits", {})
    found = container.resources.limits
    for name in sorted(_devices(wanted) | _devices(found)):
        if str(wanted.get(name, 0)) != str(found.get(name, 0)):
            yield f"limits: {name} {wanted.get(name, 0)} became {found.get(name, 0)}"
    claims = len(intended["resources"].get("claims", ()))
    if len(container.resources.claims) != claims:
        yield f"claims: {claims} became {len(container.resources.claims)}"


def _devices(limits: Object | dict[str, str | int]) -> set[str]:
    return {name for name in limits if "/" in name}


def _of(value: str) -> str:
    return _shown((value,)) if value else "something else"


def _shown(words: Sequence[str]) -> str:
    return shlex.join(words) if words else "nothing"
