"""Builds the pages of `docs/` as a site: `build.py OUTPUT VERSION` writes OUTPUT/VERSION.

Pages of the top level come along; links to files of the code become their paths, since the site has
no code. OUTPUT/index.html lists the releases that lie there.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = {
    "README.md": "overview.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
SECTIONS: Final = {
    "Start": ("overview", "tutorials/*"),
    "Do one thing": ("how-to/tune/*", "how-to/reserve/*", "how-to/operate/*"),
    "Look up": ("reference/*", "security", "changelog"),
    "Understand": ("explanation/*", "decisions/*"),
    "Change the code": ("developer-quickstart", "contributing", "what-we-reach-into"),
}
SUMMARY: Final = (
    "Reserves GPUs for LLM-inference tuning, runs the experiments and shows what the GPUs did."
)
LINK: Final = re.compile(r"(!?\[((?:[^\]`]|`[^`]*`)*)\])\(([^)\s:]+)\)")


def gather(directory: Path) -> None:
    """Copy all pages into a directory, their links turned to where the pages lie there."""
    for path in sorted(DOCS.rglob("*")):
        place = path.relative_to(DOCS)
        if path.is_dir() or place.parts[0] in {"site", "README.md"}:
            continue
        (directory / place).parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            (directory / place).write_text(with_links(path, place))
        else:
            shutil.copyfile(path, directory / place)
    for name, place in PAGES.items():
        (directory / place).write_text(with_links(ROOT / name, Path(place)))
    (directory / "index.md").write_text(index_page())


def with_links(page: Path, place: Path) -> str:
    """Return a page's text with links as seen from its place in the site."""

    def turned(match: re.Match[str]) -> str:
        label, text, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path:
            return match[0]
        file = (page.parent / path).resolve()
        relative = file.relative_to(ROOT).as_posix()
        if relative in PAGES:
            site_path = PAGES[relative]
        elif relative == "docs/README.md":
            site_path = "index.md"
        elif relative.startswith("docs/"):
            site_path = relative.removeprefix("docs/")
        else:
            return text if text.startswith("`") else f"{text} (`{relative}`)"
        away = os.path.relpath(site_path, place.parent)
        return f"{label}({away}{'#' if anchor else ''}{anchor})"

    return LINK.sub(turned, page.read_text())


def index_page() -> str:
    """Return the first page: that of `docs/`, and the tree of all pages."""
    trees = [
        "\n".join(
            ["```{toctree}", ":hidden:", ":glob:", f":caption: {caption}", "", *entries, "```"]
        )
        for caption, entries in SECTIONS.items()
    ]
    return "\n\n".join([with_links(DOCS / "README.md", Path("index.md")), *trees, ""])


def llms_text(source: Path) -> str:
    """Return the list of pages for language models (llms.txt), each with its title."""
    lines = ["# GPU Steward", "", f"> {SUMMARY}"]
    for caption, entries in SECTIONS.items():
        lines += ["", f"## {caption}", ""]
        for entry in entries:
            for page in sorted(source.glob(f"{entry}.md")):
                title = page.read_text().partition("\n")[0].removeprefix("# ")
                place = page.relative_to(source).with_suffix(".html").as_posix()
                lines.append(f"- [{title}]({place})")
    return "\n".join([*lines, ""])


def releases_page(names: list[str]) -> str:
    """Return the page that lists the releases of a site, the newest first."""
    items = "".join(f'<li><a href="{name}/">{name}</a></li>' for name in names)
    return (
        '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>GPU Steward</title>'
        f"<h1>GPU Steward: documents by release</h1><ul>{items}</ul></html>\n"
    )


def main(output: Path, version: str) -> int:
    """Build the site of one version, and list all. Any link that leads nowhere is an error."""
    source = output.with_name(f"{output.name}-source")
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    gather(source)
    site = output / version
    shutil.rmtree(site, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "--builder", "html", "--fail-on-warning"]
    command += ["--keep-going", "--quiet", "--conf-dir", str(Path(__file__).parent)]
    built = subprocess.run(
        [*command, str(source), str(site)],
        env={**os.environ, "GPUSTEWARD_RELEASE": version},
        check=False,
    )
    (site / "llms.txt").write_text(llms_text(source))
    names = sorted((path.name for path in output.iterdir() if path.is_dir()), reverse=True)
    (output / "index.html").write_text(releases_page(names))
    return built.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
