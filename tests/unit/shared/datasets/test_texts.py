from schemas.task.dataset import DatasetFormat, DatasetUse, DropReason, LengthUnit
from shared.datasets.texts import dataset_text


def test_text_says_what_was_used_and_why_the_rest_was_not() -> None:
    use = DatasetUse(
        sha256="ab12",
        format=DatasetFormat.CSV,
        rows=9,
        used=5,
        dropped={DropReason.DUPLICATE: 3, DropReason.NOT_SAMPLED: 1},
    )

    assert dataset_text(use) == (
        "dataset: 5 of 9 rows of csv (not used: 3 duplicates, 1 not drawn), SHA-256 ab12;"
        " lengths in words, as the engine counts no tokens"
    )


def test_text_of_a_whole_dataset_names_no_rest() -> None:
    use = DatasetUse(
        sha256="ab12",
        format=DatasetFormat.TEXT,
        rows=5,
        used=5,
        length_unit=LengthUnit.ENGINE_TOKENS,
    )

    assert dataset_text(use) == (
        "dataset: 5 of 5 rows of text, SHA-256 ab12; lengths in tokens, counted by the engine"
    )
