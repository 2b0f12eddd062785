"""Documentation, built strictly: a warning fails the build."""

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
