"""Which servers an executor asks for people."""

import pytest

from schemas.errors import ErrorCode
from services.executor.host.servers import refuse_host
from shared.errors import RefusedError


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://[", "expected http:// or https://, a host"),
        ("http://engine:99999", "expected http:// or https://, a host"),
        ("https://\u00d1*\u0091CV", "expected a host that can be found"),
        (f"https://{'a' * 64}.example", "expected a host that can be found"),
        ("http://169.254.169.254", "a link-local address"),
    ],
)
async def test_host_that_cannot_be_asked_is_refused(url: str, says: str) -> None:
    with pytest.raises(RefusedError, match=says) as caught:
        await refuse_host(url, frozenset())

    assert (caught.value.code, caught.value.path) == (ErrorCode.BAD_REQUEST, "$.url")
