"""The versions that a model was made with."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import version


def current_versions() -> dict[str, str]:
    """Return the versions of Python, streamlda and the packages its numbers depend on."""
    return {"python": platform.python_version(), **_package_versions()}


@cache
def _package_versions() -> dict[str, str]:
    """Return those of packages; they are read from files, in 4 milliseconds."""
    return {n: version(n) for n in ("streamlda", "numpy", "numba", "scipy", "scikit-learn")}
