"""The labels of a node, as its settings name them."""

import msgspec

from schemas.base import LabelKey, LabelValue


def parse_labels(text: str) -> dict[str, str]:
    """`zone=a,disk=nvme` as a mapping. Raises ValueError with what is wrong."""
    labels: dict[str, str] = {}
    for part in filter(None, (item.strip() for item in text.split(","))):
        key, _, value = part.partition("=")
        try:
            labels[msgspec.convert(key, LabelKey)] = msgspec.convert(value, LabelValue)
        except msgspec.ValidationError as error:
            raise ValueError(
                "expected labels as key=value, separated by commas, of letters, digits and . _ -;"
                f" found {part!r}"
            ) from error
    return labels
