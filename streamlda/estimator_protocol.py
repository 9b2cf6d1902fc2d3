"""What scikit-learn asks of an estimator, without importing it: that takes a second and 100 MB."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from functools import cache
from inspect import getattr_static, signature
from typing import Any

import numpy as np
import scipy


@cache
def _bases(kind: Any) -> Any:
    """Return a class of scikit-learn's own bases, with the methods of a kind that they look at."""
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

    bases = (ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator)
    methods = {"fit": kind.fit, "partial_fit": kind.partial_fit, "transform": kind._transform}
    return type(kind.__name__, bases, methods)


def _bound(name: str, instance: Any, owner: Any) -> Any:
    """Return an attribute of scikit-learn's bases, as one of an object that has not got them."""
    found = getattr_static(_bases(owner), name)
    return found.__get__(instance, owner) if hasattr(found, "__get__") else found


class _OfBases:
    """An attribute that scikit-learn's bases give, which are imported when it is read."""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        return _bound(self._name, instance, owner)


class ScikitLearnEstimator(ABC):
    """A transformer for scikit-learn that is no `BaseEstimator`, but has all that one has.

    What needs scikit-learn is done by its own bases when it is asked for, so that parameters,
    outputs, routing and displays are those of the installed version.
    """

    fit_transform = _OfBases()
    get_feature_names_out = _OfBases()
    get_metadata_routing = _OfBases()
    set_fit_request = _OfBases()
    set_output = _OfBases()
    set_params = _OfBases()
    set_partial_fit_request = _OfBases()
    _repr_html_ = _OfBases()
    _repr_mimebundle_ = _OfBases()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool, default True
            Those of parameters that are estimators too, as ``name__parameter``.
        """
        found = {name: getattr(self, name) for name in self._get_param_names()}
        for name, value in list(found.items()) if deep else ():
            if hasattr(value, "get_params") and not isinstance(value, type):
                found |= {f"{name}__{key}": each for key, each in value.get_params().items()}
        return found

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(signature(cls).parameters)

    def __repr__(self) -> str:
        parameters = signature(type(self)).parameters
        changed = (
            f"{name}={value!r}"
            for name, value in self.get_params(deep=False).items()
            if repr(value) != repr(parameters[name].default)
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        return _bases(type(self))().__sklearn_tags__()

    def __getattr__(self, name: str) -> Any:
        known = getattr_static(type(self), name, None)
        if isinstance(known, property):
            return known.__get__(self)  # It raised an AttributeError, and does so again.
        # Names that only scikit-learn's own code reads.
        if "sklearn" in sys.modules and name.startswith("_") and not name.startswith("__"):
            try:
                return _bound(name, self, type(self))
            except AttributeError:
                pass
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name)

    @abstractmethod
    def _transform(self, X: Any) -> Any:
        """Return what rows become, as an array."""

    def _in_container(self, X: Any) -> Any:
        """Return what rows become, in the container that `set_output` asks for."""
        # Without scikit-learn nobody has asked for one.
        if "sklearn" in sys.modules or "_sklearn_output_config" in vars(self):
            return _bases(type(self)).transform(self, X)
        return self._transform(X)


def validated(estimator: Any, X: Any, *, reset: bool, min_samples: int) -> Any:
    """Return counts that scikit-learn's checks accept; it is imported where they are in doubt."""
    known = vars(estimator)
    if (
        _are_counts(X)
        and X.shape[0] >= min_samples
        and (reset or (known["n_features_in_"] == X.shape[1] and "feature_names_in_" not in known))
    ):
        if reset:
            known.pop("feature_names_in_", None)
            estimator.n_features_in_ = X.shape[1]
        return X
    from sklearn.utils.validation import validate_data

    return validate_data(
        estimator,
        X,
        reset=reset,
        ensure_min_samples=min_samples,
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        ensure_non_negative=True,
    )


def _are_counts(X: Any) -> bool:
    """Return whether this is certainly a matrix of finite numbers of 0 or more."""
    is_sparse = getattr(X, "format", None) == "csr" and scipy.sparse.issparse(X)
    values: Any = X.data if is_sparse else X
    if not (is_sparse or type(X) is np.ndarray) or X.ndim != 2 or not X.shape[1]:
        return False
    if X.dtype.kind not in "biu" and X.dtype not in (np.float64, np.float32):
        return False
    # Not of NaN.
    return not values.size or bool(values.min() >= 0 and values.max() < np.inf)
