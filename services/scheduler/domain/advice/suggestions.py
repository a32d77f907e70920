"""The smallest change with which a request would be granted now, if there is one.

A request can give way in several ways, each a ladder of steps from the request to the most that
can be given up. Fewest changes win; among as many changes, those that give up the smallest share of
the request, and overtaking others comes last. Whatever is suggested has been tried.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial, reduce
from itertools import combinations
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from schemas.gpus.gpu_request import WHOLE, GpuRequest, Selector
from schemas.scheduler.reasons import ChangeKind, Suggestion
from services.scheduler.domain.placement.gpu_models import needs_one_model
from services.scheduler.domain.placement.reasons import many
from services.scheduler.domain.placement.selectors import describe
from services.scheduler.domain.placement.shares import hundredths_of
from shared.accelerator_rules.compute_capability import capability
from shared.accelerator_rules.precision import ANY, hint_for

WouldGrant = Callable[[GpuRequest], bool]

TRIALS: Final = 400
FITTED_PER_SIZE: Final = 16
MORE_THAN_ANY_GPU_MB: Final = 1 << 20
MAX_SECONDS: Final = 30 * 24 * 3600
SHORTEST_SECONDS: Final = 60
HIGHEST_PRIORITY: Final = 1000
WHOLE_SHARE: Final = 1.0
PRIORITY_SHARE: Final = 2.0


class Concession(Struct, frozen=True, eq=False):
    """One way to give in: `after(request, k)` is the request after k of `steps` steps.

    `share` is how much of the request is given up then, `says` the change in words.
    """

    kind: ChangeKind
    steps: int
    change: Callable[[GpuRequest, int], GpuRequest]
    share: Callable[[int], float]
    says: Callable[[int], str]


Steps = Mapping[Concession, int]


class Trials:
    """Tries whether requests would be granted, each once, and no more of them than allowed.

    When no trial is left all count as not granted, so that only what was tried is suggested.
    """

    def __init__(self, would_grant: WouldGrant, allowed: int) -> None:
        self._would_grant = would_grant
        self._known: dict[GpuRequest, bool] = {}
        self.left = allowed

    def __call__(self, request: GpuRequest) -> bool:
        if request not in self._known:
            if self.left <= 0:
                return False
            self.left -= 1
            self._known[request] = self._would_grant(request)
        return self._known[request]


def suggest(
    request: GpuRequest, would_grant: WouldGrant, *, trials: int = TRIALS
) -> Suggestion | None:
    """Return a change of the request with which it would be granted now.

    Returns None if nothing that the request can give up would help, or if it is granted as it is.
    `would_grant` is called at most `trials` times. With so many ways that not every combination can
    be tried, a suggestion of several changes is one of which none can be left out.
    """
    holds = Trials(would_grant, trials)
    concessions = list(_concessions(request))
    if holds(request) or not holds(_apply(request, _most(concessions))):
        return None
    enough = _irreducible(request, concessions, holds)
    for size in range(1, len(enough)):
        if combinations_found := _combinations(request, concessions, size, holds, trials // 2):
            return _smallest(request, combinations_found, holds)
    same_size = _combinations(request, concessions, len(enough), holds, trials // 2)
    return _smallest(
        request,
        [enough, *(combination for combination in same_size if combination != enough)],
        holds,
    )


def _combinations(
    request: GpuRequest, concessions: list[Concession], size: int, holds: Trials, spared: int
) -> list[tuple[Concession, ...]]:
    """So many ways that are enough together, as far as trials go beyond those to be `spared`."""
    return [
        combination
        for combination in combinations(concessions, size)
        if holds.left > spared and holds(_apply(request, _most(combination)))
    ]


def _most(concessions: Iterable[Concession]) -> Steps:
    return {concession: concession.steps for concession in concessions}


def _apply(request: GpuRequest, steps: Steps) -> GpuRequest:
    return reduce(lambda so_far, step: step[0].change(so_far, step[1]), steps.items(), request)


def _irreducible(
    request: GpuRequest, concessions: Iterable[Concession], holds: Trials
) -> tuple[Concession, ...]:
    """Ways that are enough together and of which none can be left out."""
    needed = list(concessions)
    for concession in reversed(list(needed)):
        without = [remaining for remaining in needed if remaining is not concession]
        if without and holds(_apply(request, _most(without))):
            needed = without
    return tuple(needed)


def _smallest(
    request: GpuRequest, options: list[tuple[Concession, ...]], holds: Trials
) -> Suggestion:
    fitted = [_reduce(request, combination, holds) for combination in options[:FITTED_PER_SIZE]]
    best = min(
        fitted, key=lambda steps: sum(concession.share(k) for concession, k in steps.items())
    )
    concessions_text = " and ".join(concession.says(k) for concession, k in best.items())
    return Suggestion(
        changes=tuple(concession.kind for concession in best),
        request=_apply(request, best),
        message=f"{concessions_text}: then it is granted now",
    )


def _reduce(request: GpuRequest, concessions: tuple[Concession, ...], holds: Trials) -> Steps:
    """Return the fewest steps of each concession that suffice; all of them together are known
    to.
    """
    steps = dict(_most(concessions))
    for concession in concessions:
        low, high = 0, steps[concession]
        while high - low > 1:
            middle = (low + high) // 2
            if holds(_apply(request, {**steps, concession: middle})):
                high = middle
            else:
                low = middle
        steps[concession] = high
    return steps


def _concessions(request: GpuRequest) -> Iterator[Concession]:
    """Yield every concession that the request can make, the preferred ones first."""
    yield from _duration(request)
    yield from _utilization(request)
    yield from _memory(request)
    yield from _host(request)
    yield from _count(request)
    if request.balanced_memory:
        yield _flag(
            ChangeKind.UNBALANCED_MEMORY,
            lambda request_before: replace(request_before, balanced_memory=False),
            "do without balanced memory",
        )
    if needs_one_model(request):
        yield _flag(
            ChangeKind.MIXED_MODELS,
            lambda request_before: replace(request_before, mixed_models=True),
            "accept GPUs of several models together",
        )
    yield from _selectors(request)
    if request.priority < HIGHEST_PRIORITY:
        yield Concession(
            ChangeKind.HIGHER_PRIORITY,
            HIGHEST_PRIORITY - request.priority,
            lambda request_before, k: replace(request_before, priority=request.priority + k),
            lambda k: PRIORITY_SHARE + k / HIGHEST_PRIORITY,
            lambda k: f"raise the priority from {request.priority} to {request.priority + k}",
        )


def _duration(request: GpuRequest) -> Iterator[Concession]:
    stated = request.expected_duration_seconds
    longest = math.ceil(stated) if stated is not None else MAX_SECONDS + 1
    if longest <= SHORTEST_SECONDS:
        return
    instead = f" instead of {stated:g} s" if stated is not None else ""
    yield Concession(
        ChangeKind.SHORTER_DURATION,
        longest - SHORTEST_SECONDS,
        lambda request_before, k: replace(
            request_before, expected_duration_seconds=float(longest - k)
        ),
        lambda k: k / longest,
        lambda k: f"tell that it takes no longer than {longest - k} s{instead}",
    )


def _utilization(request: GpuRequest) -> Iterator[Concession]:
    limit = request.max_utilization_percent
    base = math.floor(limit)
    if base < 100:
        yield Concession(
            ChangeKind.HIGHER_UTILIZATION_LIMIT,
            100 - base,
            lambda request_before, k: replace(
                request_before, max_utilization_percent=float(base + k)
            ),
            lambda k: k / 100,
            lambda k: f"accept GPUs that others use to {base + k} % instead of {limit:g} %",
        )


def _memory(request: GpuRequest) -> Iterator[Concession]:
    if request.shares is not None:  # memory comes with them
        return
    asked_mb = request.min_memory_mb
    top = asked_mb if asked_mb is not None else MORE_THAN_ANY_GPU_MB
    if top == 0:
        return
    present_limit = f"{asked_mb} MB" if asked_mb is not None else "half of a GPU's memory"
    yield Concession(
        ChangeKind.LESS_MEMORY,
        top,
        lambda request_before, k: replace(request_before, min_memory_mb=top - k),
        lambda k: k / top if asked_mb is not None else 0.5,
        lambda k: f"ask for {top - k} MB of free memory per GPU instead of {present_limit}",
    )


def _host(request: GpuRequest) -> Iterator[Concession]:
    cpus, memory_mb = request.cpu_count, request.host_memory_mb
    if cpus:
        most = math.ceil(cpus)
        yield Concession(
            ChangeKind.LESS_CPU,
            most,
            lambda request_before, k: replace(request_before, cpu_count=float(most - k) or None),
            lambda k: k / most,
            lambda k: f"ask for {most - k} CPUs of a node instead of {cpus:g}",
        )
    if memory_mb:
        yield Concession(
            ChangeKind.LESS_HOST_MEMORY,
            memory_mb,
            lambda request_before, k: replace(request_before, host_memory_mb=memory_mb - k or None),
            lambda k: k / memory_mb,
            lambda k: f"ask for {memory_mb - k} MB of a node's memory instead of {memory_mb} MB",
        )


def _count(request: GpuRequest) -> Iterator[Concession]:
    gpus, nodes = request.gpus, request.nodes
    if request.shares is not None:
        asked_for = hundredths_of(request)
        step = math.gcd(asked_for, WHOLE)  # of any quantum a multiple
        most = asked_for // step - 1
        if most:
            yield Concession(
                ChangeKind.FEWER_SHARES,
                most,
                lambda request_before, k: replace(
                    request_before, shares=(most + 1 - k) * step / WHOLE
                ),
                lambda k: k / most,
                lambda k: (
                    f"ask for {(most + 1 - k) * step / WHOLE:.2f} of the GPUs instead of"
                    f" {request.shares:.2f}"
                ),
            )
        return
    if nodes > 1:
        yield Concession(
            ChangeKind.FEWER_NODES,
            nodes - 1,
            lambda request_before, k: replace(request_before, nodes=nodes - k),
            lambda k: k / nodes,
            lambda k: f"ask for {many(nodes - k, 'node')} instead of {nodes}",
        )
    if gpus > 1:
        of_each = " of each node" if nodes > 1 else ""
        yield Concession(
            ChangeKind.FEWER_GPUS,
            gpus - 1,
            lambda request_before, k: replace(request_before, gpus=gpus - k),
            lambda k: k / gpus,
            lambda k: f"ask for {many(gpus - k, 'GPU')}{of_each} instead of {gpus}",
        )


def _selectors(request: GpuRequest) -> Iterator[Concession]:
    dropped = partial(_flag, ChangeKind.DROP_SELECTOR)
    insist = "do not insist on"
    nodes, uuids, models = request.node_ids, request.device_uuids, request.gpu_models
    if nodes:
        yield dropped(lambda r: replace(r, node_ids=()), f"{insist} nodes {', '.join(nodes)}")
    if uuids:
        yield dropped(lambda r: replace(r, device_uuids=()), f"{insist} {len(uuids)} devices")
    if models:
        yield dropped(lambda r: replace(r, gpu_models=()), f"{insist} models {', '.join(models)}")
    if (model := request.same_model) is not None:
        yield dropped(lambda r: replace(r, same_model=None), f"{insist} model {model.name}")
    if request.min_compute_capability is not None:
        yield dropped(
            lambda r: replace(r, min_compute_capability=None),
            f"{insist} compute capability {request.min_compute_capability}"
            f"{hint_for(capability(request.min_compute_capability) or ANY)}",
        )
    for selector in dict.fromkeys(request.require):
        yield dropped(partial(_without, selector), f"{insist} {describe(selector)}")


def _without(selector: Selector, request: GpuRequest) -> GpuRequest:
    return replace(request, require=tuple(kept for kept in request.require if kept != selector))


def _flag(kind: ChangeKind, change: Callable[[GpuRequest], GpuRequest], says: str) -> Concession:
    return Concession(
        kind,
        1,
        lambda request_before, k: change(request_before) if k else request_before,
        lambda k: WHOLE_SHARE * k,
        lambda _: says,
    )
