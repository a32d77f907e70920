"""Nodes in the ledger: what operators change of one, and the facts that follow."""

from typing import Annotated, ClassVar

from msgspec import Meta

from schemas.base import Command, Event, GivenReason, LabelKey, LabelValue, NodeId

LabelChanges = Annotated[dict[LabelKey, LabelValue | None], Meta(min_length=1, max_length=64)]


class LabelNode(Command, frozen=True, kw_only=True, tag="scheduler.label_node"):
    """Set labels of a node; None takes one away.

    These win over what the node's agent reports, a label that was taken away too.
    """

    node_id: NodeId
    labels: LabelChanges


class AdmitNode(Command, frozen=True, kw_only=True, tag="scheduler.admit_node"):
    """Grant on a node that reported for the first time; before that nothing is granted there.

    An admitted node stays admitted until it is removed.
    """

    node_id: NodeId


class RemoveNode(Command, frozen=True, kw_only=True, tag="scheduler.remove_node"):
    """Forget a node that has left; one that reports again is new.

    `end_held` ends what is held there, on the sender's word that nothing of it runs any more.
    Refused for a node that still reports, and without `end_held` for one that is held.
    """

    node_id: NodeId
    end_held: bool = False
    reason: GivenReason = ""


class NodeEvent(Event, frozen=True, kw_only=True):
    """What facts about a whole node carry."""

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId


class NodeLabelled(NodeEvent, frozen=True, kw_only=True, tag="scheduler.node_labelled"):
    """An operator has changed labels; `labels` are all that count for it from now on."""

    labels: dict[str, str]


class NodeAdmitted(NodeEvent, frozen=True, kw_only=True, tag="scheduler.node_admitted"):
    """An operator has admitted it."""


class NodeRemoved(NodeEvent, frozen=True, kw_only=True, tag="scheduler.node_removed"):
    """An operator had it forgotten, with its devices."""

    reason: str = ""
