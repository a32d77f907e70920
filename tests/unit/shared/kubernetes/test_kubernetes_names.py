"""Labels and paths that a cluster takes, and errors that it sends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import UnavailableError
from shared.kubernetes.errors import KubernetesError, error_of
from shared.kubernetes.names import (
    Resource,
    label_selector,
    label_value,
)

PODS = Resource("v1", "pods")


@given(st.text(), st.text())
def test_two_texts_never_share_a_label(one: str, other: str) -> None:
    if one != other:
        assert label_value(one) != label_value(other)


@given(st.text())
def test_any_text_becomes_a_valid_label_value(text: str) -> None:
    assert label_selector({"gpusteward.reservation": label_value(text)})


@pytest.mark.parametrize("good", ["a", "smollm2-cpu", "x" * 63])
def test_a_label_value_that_fits_stays_as_it_is(good: str) -> None:
    assert label_value(good) == good


@pytest.mark.parametrize("key", ["a=b", "a,b", "", "a b", "/a", "a\n"])
def test_a_selector_holds_nothing_but_labels(key: str) -> None:
    with pytest.raises(ValueError, match="expected a label"):
        label_selector({key: "v"})
    with pytest.raises(ValueError, match="expected a label"):
        label_selector({"k": f"{key or '='}="})


def test_a_path_leads_to_the_object_and_nowhere_else() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("a", "b", subresource="log") == "/api/v1/namespaces/a/pods/b/log"
    assert Resource("apps/v1", "deployments").path("a") == "/apis/apps/v1/namespaces/a/deployments"
    assert Resource("v1", "nodes", is_namespaced=False).path("a", "b?c") == "/api/v1/nodes/b%3Fc"
    for bad in ("..", ".", "", "a/../b", "a%2f"):
        with pytest.raises(ValueError, match="one part of a path"):
            PODS.path("a", bad)


def test_answer_tells_code_and_reason() -> None:
    error = error_of(404, b'{"kind":"Status","reason":"NotFound","message":"no b","code":404}')

    assert (type(error), error.code, error.reason) == (KubernetesError, 404, "NotFound")
    assert str(error) == "NotFound: no b"


@pytest.mark.parametrize("code", [429, 500, 503, 504])
def test_an_answer_that_says_later_counts_as_none(code: int) -> None:
    error = error_of(code, b"<html>upstream</html>")

    assert isinstance(error, UnavailableError)
    assert (error.code, error.message) == (code, "<html>upstream</html>")
