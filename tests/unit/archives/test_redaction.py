"""No secret of a task leaves with it."""

import pytest

from shared.archives.redaction import without_secrets


@pytest.mark.parametrize(
    "name", ["api-key", "api_key", "HF_TOKEN", "hfToken", "password", "Authorization"]
)
def test_named_secrets_are_hidden_everywhere(name: str) -> None:
    task = {
        "benchmark": {"additional_params": [{name: "s3cret"}]},
        "parameters": {name: ["s3cret"]},
    }

    assert "s3cret" not in str(without_secrets(task))


def test_a_grid_of_secrets_is_still_a_grid() -> None:
    grid = {"api-key": {"type": "choice", "values": ["a", "b"]}}

    assert without_secrets(grid) == {"api-key": {"type": "choice", "values": ["***", "***"]}}


def test_words_only_containing_a_secret_stay() -> None:
    kept = {"max_num_tokens": 8, "model_tokenizer": "gpt2", "max-batch-tokens": "4", "keys": 3}

    assert without_secrets(kept) == {**kept, "max-batch-tokens": "***"}


def test_what_an_engine_wrote_stays_here() -> None:
    assert without_secrets({"failure": {"log_tail": ["token=x"], "message": "m"}}) == {
        "failure": {"log_tail": [], "message": "m"}
    }
