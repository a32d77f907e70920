"""Runs the platform's processes on one machine: starts, restarts and stops them, and leaves none
behind.
"""

from shared.supervisor.leftovers import MARK_VARIABLE, kill_marked, marked_processes
from shared.supervisor.service import Child, ChildSpec, ServiceProcess
from shared.supervisor.supervisor import Backoff, ChildState, State, Supervisor, read_states

__all__ = [
    "MARK_VARIABLE",
    "Backoff",
    "Child",
    "ChildSpec",
    "ChildState",
    "ServiceProcess",
    "State",
    "Supervisor",
    "kill_marked",
    "marked_processes",
    "read_states",
]
