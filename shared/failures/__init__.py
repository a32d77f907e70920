"""Why attempts fail: what is done about each kind, and the texts by which causes are recognised.

Pure, as a domain is.
"""

from shared.failures.catalogue import CATALOGUE, Finding, findings, recognise
from shared.failures.known import Known, KnownFailure
from shared.failures.rules import RULES, FailureRule

__all__ = [
    "CATALOGUE",
    "RULES",
    "FailureRule",
    "Finding",
    "Known",
    "KnownFailure",
    "findings",
    "recognise",
]
