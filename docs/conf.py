"""Settings of Sphinx. Nothing is loaded from other hosts: no fonts, no scripts, no pictures."""

from importlib.metadata import version as installed_version

project = "Tagfill"
author = "the Tagfill contributors"
copyright = author
version = release = installed_version("tagfill")

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown"}
nitpicky = True

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"Tagfill {release}"
html_copy_source = False
html_show_sphinx = False
