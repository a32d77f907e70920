"""Whether a bound pod runs what was intended: nothing between may have changed it in silence.

OME rewrites degrees of parallelism for some accelerators, webhooks add variables, policies change
images: a measurement would be another configuration's.
"""

import shlex
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final

from services.executor.runtimes.kubernetes.kinds import Object
from services.executor.runtimes.kubernetes.leader_worker import VARIABLES
from shared.kubernetes.objects.pods import ContainerDetails, PodDetails
from shared.kubernetes.ome import ENGINE_CONTAINER

# OME's own and those of LeaderWorkerSets, which runtimes name in their flags, and no engine reads.
_TOLERATED: Final = VARIABLES | {"MODEL_PATH", "PARALLELISM_SIZE"}
_MAX_DIFFERENCES: Final = 6


def differences(pod: PodDetails, intended: Object, node_names: Collection[str]) -> tuple[str, ...]:
    """Return the differences from what was intended, a sentence each.

    `node_names` are the nodes that were chosen, empty where the cluster chooses.
    """
    container = next((c for c in pod.spec.containers if c.name == intended["name"]), None)
    if container is None:
        names = ", ".join(container.name for container in pod.spec.containers)
        return (f"the pod has no container {ENGINE_CONTAINER!r}, but {names}",)
    bound_to = pod.spec.node_name
    return (
        *_list_changes("command", intended.get("command", ()), container.command),
        *_list_changes("args", intended["args"], container.args),
        *_environment(intended, container),
        *_image(intended, container),
        *_resources(intended, container),
        *(
            [f"it runs on node {bound_to}, chosen was {' or '.join(sorted(node_names))}"]
            if node_names and bound_to and bound_to not in node_names
            else []
        ),
    )


def _list_changes(what: str, intended: Sequence[str], actual: Sequence[str]) -> Iterator[str]:
    if tuple(intended) == tuple(actual):
        return
    steps = SequenceMatcher(None, list(intended), list(actual), autojunk=False).get_opcodes()
    for number, (how, begin, end, found_begin, found_end) in enumerate(
        step for step in steps if step[0] != "equal"
    ):
        if number == _MAX_DIFFERENCES:
            yield f"{what}: and more"
            return
        # The flag before a changed value says which it is.
        flag = intended[begin - 1 : begin] if how == "replace" and begin else ()
        intended_text = _format_words((*flag, *intended[begin:end]))
        actual_text = _format_words((*flag, *actual[found_begin:found_end]))
        if how == "insert":
            yield f"{what}: {actual_text} was added"
        elif how == "delete":
            yield f"{what}: {intended_text} was left out"
        else:
            yield f"{what}: {intended_text} became {actual_text}"


def _environment(intended: Object, container: ContainerDetails) -> Iterator[str]:
    intended_values = {variable["name"]: variable.get("value") for variable in intended["env"]}
    actual_variables = {variable.name: variable for variable in container.env}
    for name, value in intended_values.items():
        variable = actual_variables.get(name)
        if variable is None:
            yield f"env: {name} was left out"
        elif value is None:  # a secret's, which nobody reads here
            if variable.value_from is None:
                yield f"env: {name} is none of a Secret"
        elif variable.value_from is not None or variable.value != value:
            yield f"env: {_format_words((f'{name}={value}',))} became {_of(variable.value)}"
    yield from (
        f"env: {name} was added"
        for name in actual_variables
        if name not in intended_values and name not in _TOLERATED
    )
    if container.env_from:
        yield "env: variables from a ConfigMap or Secret were added"


def _image(intended: Object, container: ContainerDetails) -> Iterator[str]:
    """The same under a registry before it, as a mirror's, is the same image."""
    intended_image, actual_image = intended["image"], container.image
    if actual_image != intended_image and not actual_image.endswith(f"/{intended_image}"):
        yield f"image: {intended_image} became {actual_image}"


def _resources(intended: Object, container: ContainerDetails) -> Iterator[str]:
    intended_limits = intended["resources"].get("limits", {})
    actual_limits = container.resources.limits
    for name in sorted(_devices(intended_limits) | _devices(actual_limits)):
        intended_count, actual_count = intended_limits.get(name, 0), actual_limits.get(name, 0)
        if str(intended_count) != str(actual_count):
            yield f"limits: {name} {intended_count} became {actual_count}"
    claims = len(intended["resources"].get("claims", ()))
    if len(container.resources.claims) != claims:
        yield f"claims: {claims} became {len(container.resources.claims)}"


def _devices(limits: Object | dict[str, str | int]) -> set[str]:
    return {name for name in limits if "/" in name}


def _of(value: str) -> str:
    return _format_words((value,)) if value else "something else"


def _format_words(words: Sequence[str]) -> str:
    return shlex.join(words) if words else "nothing"
