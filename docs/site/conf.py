"""How Sphinx draws the pages: read by it in the folder that `build.py` has gathered them in."""

import os

project = "GPU Steward"
release = version = os.environ["GPUSTEWARD_RELEASE"]
project_copyright = "the contributors of GPU Steward, Apache-2.0"
html_title = f"{project} {release}"
extensions = ["myst_parser", "sphinxcontrib.mermaid"]
root_doc = "index"
html_theme = "furo"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "announcement": f'This is {release}. <a href="/">Other releases</a>',
}
# Anchors as the pages write them: those of GitHub.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
myst_fence_as_directive = ["mermaid"]
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
