"""Documentation, built strictly: a warning fails the build."""

import os
import re
import sys
from pathlib import Path

import unpooled

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

project = "unpooled"
author = copyright = "The unpooled developers"
release = unpooled.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "mathml"]
source_suffix = {".md": "markdown"}
#: Tables that pages include.
exclude_patterns = ["parameters/*"]
html_theme = "furo"
html_title = "unpooled"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["math.css"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"
myst_heading_anchors = 3
myst_enable_extensions = ["deflist", "dollarmath"]
#: The pages of proofs are in the package; docs/theory has a page of the site for each, which includes it.
PROOFS = {
    (page.parent / re.findall(r"{include} (\S+)", page.read_text())[0]).resolve(): page
    for page in sorted((HERE / "theory").rglob("*.md"))
    if page.name != "index.md"
}


def setup(app):
    """Keep napoleon away from docstrings of properties and attributes, where it takes what stands before a colon for a type."""
    held = {}

    def hold(_app, what, name, _obj, _options, lines):
        if what in {"property", "attribute"}:
            held[name] = lines[:]
            lines.clear()

    def give_back(_app, _what, name, _obj, _options, lines):
        lines.extend(held.pop(name, ()))

    def proofs(app, name, source):
        """Let links to a page of proofs lead to the page of the site that includes it."""
        folder = Path(app.env.doc2path(name)).parent

        def lead(link):
            page = PROOFS.get((folder / link[1]).resolve())
            return f"]({os.path.relpath(page, folder)}{link[2] or ''})" if page else link[0]

        source[0] = re.sub(r"\]\(([^)#\s]+\.md)(#[^)]*)?\)", lead, source[0])

    app.connect("source-read", proofs)
    app.connect("autodoc-process-docstring", hold, priority=400)  # napoleon has 500
    app.connect("autodoc-process-docstring", give_back, priority=600)
