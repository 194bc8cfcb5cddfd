"""How Sphinx makes the site: `make docs`."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))

project = "clika_runtime"
author = "The clika_runtime authors"
project_copyright = author
version = release = version_of("clika_runtime")

# `reference` and `promises` are in docs/extensions.
extensions = [
    "myst_parser",
    "sphinx.ext.napoleon",
    "promises",
    "reference",
]
exclude_patterns = ["extensions", "static"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
# The pages of rustdoc, which `make docs` puts into the folder rust; for pages in docs itself only.
myst_url_schemes = {"https": None, "rust": {"url": "rust/{{path}}"}}

# A reference that leads nowhere is a warning, and `make docs` takes a warning for an error.
nitpicky = True
nitpick_ignore_regex = [
    # Of the standard library and of typing, which are not documented here.
    (r"py:.*", r"(asyncio|builtins|concurrent\.futures|os)\..*|as_completed|callable|False|True"),
    (r"py:.*", r"(writable )?bytes-like|(Readable|Writeable)Buffer|SupportsIndex|_CudaStream|P|T"),
    # A parameter.
    (r"py:obj", r"end"),
]
# What docstrings put in single backticks is a name.
default_role = "py:obj"
napoleon_google_docstring = False
napoleon_preprocess_types = True
maximum_signature_line_length = 80

html_theme = "furo"
html_title = "clika_runtime"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
