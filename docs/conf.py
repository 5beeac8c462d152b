"""How Sphinx makes the documents into pages: `make docs`."""

project = "collx"
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_heading_anchors = 3
