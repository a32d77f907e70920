"""Nodes as people name them in a task file, as ids."""

from msgspec.structs import replace

from schemas.task.task_file import TaskFile
from shared.ids import node_token


def with_node_ids(task: TaskFile) -> TaskFile:
    """The task with the ids of the nodes it names; an id stands for itself."""
    if task.gpus is None or not task.gpus.nodes:
        return task
    nodes = tuple(node_token(name) for name in task.gpus.nodes)
    return replace(task, gpus=replace(task.gpus, nodes=nodes))
