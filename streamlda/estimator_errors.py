"""Errors that are scikit-learn's too; imported with it when one is raised."""

from __future__ import annotations

from sklearn.exceptions import NotFittedError

from streamlda.errors import InsufficientDataError


class NoSnapshotError(InsufficientDataError, NotFittedError):  # type: ignore[misc]
    """A private estimator that has not read a whole window of rows yet."""
