"""Who is in the comparison with other libraries, and what is measured of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench import contenders
from bench.data import quality, read_counts
from bench.kinds import Json

if TYPE_CHECKING:
    from bench.measure import Meter

#: Parameters of `StreamLDA`; all that is not named is at its default.
STREAMLDA: dict[str, Json] = {
    "streamlda-spectral": {"refinement_passes": 0},
    "streamlda-default": {},
    "streamlda-more": {"refinement_passes": 2, "gibbs_sweeps": 10},
}
DEFAULT, MORE = "streamlda-default", "streamlda-more"
TOMOTOPY = "tomotopy-200"
VARIATIONAL = ("gensim-1", "gensim-10", "scikit-learn-1", "scikit-learn-10")


class Entrant(NamedTuple):
    """Who is compared: a library with options, and how many seeds it gets."""

    library: str
    make: Callable[..., contenders.Contender]
    options: Json
    #: What must be installed: module, and distribution.
    module: str
    package: str
    seeds: int = 5


def entrants() -> dict[str, Entrant]:
    """Return them by label. Counts are of the narrowest type that a library is at home with."""
    found = {
        label: Entrant("streamlda", contenders.estimator, options, "streamlda", "streamlda")
        for label, options in STREAMLDA.items()
    }
    found[TOMOTOPY] = Entrant(
        "tomotopy", contenders.tomotopy, {"sweeps": 200}, "tomotopy", "tomotopy"
    )
    for passes in (1, 10):
        found[f"gensim-{passes}"] = Entrant(
            "gensim", contenders.gensim, {"passes": passes, "dtype": "int32"}, "gensim", "gensim"
        )
        found[f"scikit-learn-{passes}"] = Entrant(
            "scikit-learn",
            contenders.scikit_learn,
            {"passes": passes, "dtype": "float32"},
            *("sklearn", "scikit-learn"),
        )
        # Its topics do not depend on the seed: repeats are for the time.
        found[f"vowpal-wabbit-{passes}"] = Entrant(
            "vowpal-wabbit",
            contenders.vowpal_wabbit,
            {"passes": passes},
            *("vowpalwabbit", "vowpalwabbit", 3),
        )
    return found


ENTRANTS = entrants()

#: Wanted, but on no package index: nothing is measured, and the tables say so.
NOT_INSTALLABLE = {
    "tlda": "tensorly's tlda is not on PyPI and not measured; from source: "
    "pip install git+https://github.com/tensorly/tlda"
}


def missing(label: str) -> str | None:
    """Return why a contender cannot be measured here and what to do, or None where it can."""
    if label in NOT_INSTALLABLE:
        return NOT_INSTALLABLE[label]
    entrant = ENTRANTS[label]
    if find_spec(entrant.module) is not None:
        return None
    return f"{entrant.package} is not installed and not measured: pip install {entrant.package}"


def compare(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Load counts into a contender, release them, fit, and judge the topics by our code.

    Only the fit is timed. Memory is that of the process: interpreter, imports, the documents in
    the contender's own form, and the fit.
    """
    entrant = ENTRANTS[parameters["contender"]]
    options = parameters["options"]
    contender = entrant.make(parameters["n_components"], seed, **options)
    meter.started()
    counts = PlainCounts.read(inputs["counts"], parameters["documents"])
    documents, before = len(counts.row_pointers) - 1, time.perf_counter()
    held = contender.load(counts)
    load_seconds = time.perf_counter() - before
    del counts
    with meter.timed():
        components, alpha = contender.fit(held)
    del held
    train, held_out = (read_counts(inputs["counts"], part) for part in ("train", "held_out"))
    judged = quality(train.rows(0, documents), held_out, components, alpha, None)
    return {"documents": documents, "load_seconds": load_seconds, **judged}


class PlainCounts(NamedTuple):
    """Counts as they lie in a file. Reading them imports nothing that a contender would pay for."""

    counts: Any
    word_ids: Any
    row_pointers: Any
    n_features: int

    @classmethod
    def read(cls, path: str, most: int | None) -> PlainCounts:
        """Read the training documents, up to a limit."""
        with np.load(path, allow_pickle=False) as file:
            names = ("counts", "word_ids", "row_pointers")
            counts, words, pointers = (file[f"train.{name}"] for name in names)
            n_features = int(file["n_features"])
        if most is not None and most < len(pointers) - 1:
            pointers = pointers[: most + 1]
            counts, words = counts[: pointers[-1]].copy(), words[: pointers[-1]].copy()
        return cls(counts, words, pointers, n_features)


COMPARE_TASKS = (compare,)
