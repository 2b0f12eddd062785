"""Documentation, built strictly: a warning fails the build."""

import re

import unpooled

project = "unpooled"
author = copyright = "The unpooled developers"
release = unpooled.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_title = "unpooled"
html_show_sourcelink = False
autodoc_typehints = "description"
autodoc_member_order = "bysource"
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]


def setup(app):
    """Keep napoleon away from docstrings of properties and attributes, where it takes what stands before a colon for a type."""
    held = {}

    def hold(_app, what, name, _obj, _options, lines):
        if what in {"property", "attribute"}:
            held[name] = lines[:]
            lines.clear()

    def give_back(_app, _what, name, _obj, _options, lines):
        lines.extend(held.pop(name, ()))

    def proofs(_app, name, source):
        """Let the index of theorems give out the pages of proofs, which are no pages of this site."""
        if name == "theorems":
            source[0] = re.sub(r"\[([^\]]+)\]\((\.\./[^)#]+\.md)#[^)]*\)", r"{download}`\1 <\2>`", source[0])

    app.connect("source-read", proofs)
    app.connect("autodoc-process-docstring", hold, priority=400)  # napoleon has 500
    app.connect("autodoc-process-docstring", give_back, priority=600)
