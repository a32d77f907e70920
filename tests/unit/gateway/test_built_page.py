"""Where the gateway looks for the page that `make web` builds."""

from services.gateway.routes.platform.web_page import BUILT


def test_built_page_is_served_from_build_folder() -> None:
    assert BUILT.name == "dist"
    assert (BUILT.parent / "package.json").is_file()
