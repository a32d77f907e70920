"""Why attempts fail: what is done about each kind, and the texts by which causes are recognised.

Pure, as a domain is.
"""

from shared.failures.catalogue import CATALOGUE, Finding, findings, recognise
from shared.failures.rules import RULES, FailureRule
from shared.known_failure import Known, KnownFailure

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
