"""Runs in the generator's environment, with the generated package `client` beside it: a task from
submission to its results. Prints what it was answered as JSON.
"""

import json
import sys
import time

from client import Client
from client.api.gpus import list_gpus
from client.api.reservations import list_reservations
from client.api.tasks import get_task, list_task_experiments, submit_task, validate_task
from client.models import Problem, TaskFile

FINISHED = {"completed", "failed", "cancelled"}
POLL_SECONDS = 0.2


def main(url: str, deadline_seconds: float) -> None:
    """Uses nothing but what was generated."""
    began = time.monotonic()
    with Client(base_url=url) as client:
        gpus = list_gpus.sync(client=client).gpus
        task = json.load(sys.stdin)
        plan = validate_task.sync(client=client, body=TaskFile.from_dict(task))
        key = {"client": client, "idempotency_key": "generated", "body": TaskFile.from_dict(task)}
        submitted, again = submit_task.sync(**key), submit_task.sync(**key)
        view = submitted
        while view.state not in FINISHED and time.monotonic() - began < deadline_seconds:
            time.sleep(POLL_SECONDS)
            view = get_task.sync(submitted.task_id, client=client)
        experiments = list_task_experiments.sync(submitted.task_id, client=client).experiments
        wrong = {**task, "optimization": {**task["optimization"], "max_parallel": 0}}
        refused = submit_task.sync(client=client, body=TaskFile.from_dict(wrong))
        held = list_reservations.sync(client=client).reservations
    answer = {
        "gpus": [gpu.simulated for gpu in gpus],
        "planned": plan.total,
        "same": str(again.task_id) == str(submitted.task_id),
        "state": str(view.state),
        "experiments": [[each.ordinal, str(each.state)] for each in experiments],
        "scores": [each.objective_score for each in experiments],
        "refused": [isinstance(refused, Problem), refused.path],
        "reservations": len(held),
    }
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
