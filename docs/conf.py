"""Settings of Sphinx. Nothing is loaded from other hosts: no fonts, no scripts, no pictures."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "Tagfill"
author = "the Tagfill contributors"
copyright = author
version = release = installed_version("tagfill")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "docstrings", "mathml"]
extensions += ["notebook_pages", "self_contained"]
exclude_patterns = ["_build", "_extensions"]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}  # notebook_pages converts the second
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other projects; docstrings name their own in plain code

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_use_legacy_class_based = False
napoleon_numpy_docstring = False
napoleon_attr_annotations = False  # signatures have the types
napoleon_use_ivar = True
napoleon_use_rtype = False
maximum_signature_line_length = 88
python_use_unqualified_type_names = True

myst_enable_extensions = ["amsmath", "deflist", "dollarmath"]
myst_dmath_double_inline = False
myst_heading_anchors = 3

html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["equations.css", "notebooks.css"]
html_theme = "furo"
html_title = f"Tagfill {release}"
html_copy_source = False
html_show_sphinx = False
