"""Documentation: all pages of the tree where they stand, and a reference that the code writes.

`make docs` builds it into build/docs; a warning is an error.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

project = _project["name"]
author = _project["authors"][0]["name"]
version = release = _project["version"]
copyright = f"the {author}, {_project['license']}"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_click",
]
root_doc = "streamlda/docs/index"
include_patterns = [
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
    *("bench/**.md", "connectors/README.md", "streamlda/README.md", "streamlda/*/README.md"),
    "streamlda/papers/errata/*.md",
    "streamlda/privacy/*.md",
    "streamlda/docs/**",
]
# Looking for pages there takes seconds.
exclude_patterns = [".*", "build", "tests"]
# Options of commands have two dashes.
smartquotes = False
html_theme = "furo"
html_title = f"{project} {version}"
html_static_path: list[str] = []

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "html_image"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 300
# Widgets would load a script from elsewhere.
nb_ipywidgets_js: dict[str, dict[str, str]] = {}

# Types in docstrings are prose: a name in "(n_samples, n_features)" is no link.
suppress_warnings = ["ref.python", "myst.header"]

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_generate = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True


def setup(app: Any) -> None:
    """Names that end in an underscore are no links in docstrings."""

    def escape(*arguments: Any) -> None:
        lines = arguments[-1]
        lines[:] = [re.sub(r"(?<=\w)_(?=[,)])", r"\\_", line) for line in lines]

    app.connect("autodoc-process-docstring", escape, priority=1)
