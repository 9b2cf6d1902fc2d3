"""Entrants of the comparison with other libraries, and what is measured of each."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bench import contenders
from bench.contenders import Contender
from bench.contenders_elsewhere import MALLET_FOLDER, anchortopics, mallet, topica
from bench.corpus import read_counts
from bench.data import completed, quality
from bench.kinds import Json

if TYPE_CHECKING:
    from bench.measure import Meter

#: Parameters of `StreamLDA`; all that is not named is at its default.
STREAMLDA: dict[str, Json] = {
    "streamlda-spectral": {"refinement_passes": 0},
    "streamlda-quick": {"refinement_passes": 1},
    "streamlda-default": {},
    "streamlda-thorough": {"refinement_passes": "thorough"},
}
QUICK, DEFAULT, THOROUGH = "streamlda-quick", "streamlda-default", "streamlda-thorough"
MEAN_OF_STATES = "tomotopy-200-mean"
TOMOTOPY = ("tomotopy-200", MEAN_OF_STATES)

#: What is added to the label of a contender that is measured on two cores too.
ON_TWO = ", two cores"

#: What a library needs, a module or a folder that an environment variable names, and what to do
#: where that is not there.
NEEDS = {
    "streamlda": ("streamlda", "pip install ."),
    "tomotopy": ("tomotopy", "pip install tomotopy"),
    "gensim": ("gensim", "pip install gensim"),
    "scikit-learn": ("sklearn", "pip install scikit-learn"),
    "vowpal-wabbit": ("vowpalwabbit", "pip install vowpalwabbit"),
    "topica": ("topica", "pip install topica"),
    "anchortopics": ("anchortopics", "pip install anchortopics"),
    "mallet": (MALLET_FOLDER, f"set {MALLET_FOLDER} to the folder of its jars"),
}


class Entrant(NamedTuple):
    """An entrant: a library with options, and how many seeds it gets."""

    library: str
    make: Callable[..., Contender]
    options: Json
    #: On small corpora and on large ones; seed 0 has documents in order, others shuffled.
    seeds: tuple[int, int] = (3, 1)
    cores: int = 1


#: By label, in the order in which they are measured: first what the targets need. Counts are of
#: the narrowest type that a library is at home with.
ONE_CORE = {
    **{
        label: Entrant("streamlda", contenders.estimator, options, (5, 3))
        for label, options in STREAMLDA.items()
    },
    MEAN_OF_STATES: Entrant(
        "tomotopy", contenders.tomotopy, {"sweeps": 200, "eta": 0.1, "states": 10}
    ),
    # Its topics do not depend on the seed, only on the order.
    "vowpal-wabbit-1": Entrant(
        "vowpal-wabbit", contenders.vowpal_wabbit, {"passes": 1}, seeds=(3, 3)
    ),
    "gensim-256": Entrant(
        "gensim", contenders.gensim, {"dtype": "int32", **contenders.HOFFMAN}, (3, 2)
    ),
    **{
        f"scikit-learn-online-{n}": Entrant(
            "scikit-learn",
            contenders.scikit_learn_online,
            {"batch_documents": n, "dtype": "float32"},
            (3, 2),
        )
        for n in (2000, 256)
    },
    **{f"tomotopy-{n}": Entrant("tomotopy", contenders.tomotopy, {"sweeps": n}) for n in (200, 50)},
    "topica-online-1": Entrant("topica", topica, {"model": "OnlineLDA", "fit_iters": 1}),
    "topica-sparse-100": Entrant(
        "topica", topica, {"model": "LDA", "sampler": "sparse", "burn_in": 50, "fit_iters": 100}
    ),
    "anchortopics": Entrant("anchortopics", anchortopics, {}, (3, 3)),
    "streamlda-random": Entrant("streamlda", contenders.random_start, {}),
    "topica-tensor": Entrant("topica", topica, {"model": "TensorLDA"}),
    "scikit-learn-nmf": Entrant("scikit-learn", contenders.factorisation, {"dtype": "float32"}),
    "vowpal-wabbit-10": Entrant("vowpal-wabbit", contenders.vowpal_wabbit, {"passes": 10}),
    "mallet-500": Entrant("mallet", mallet, {"sweeps": 500}),
    "scikit-learn-10": Entrant(
        "scikit-learn", contenders.scikit_learn, {"passes": 10, "dtype": "float32"}
    ),
    "gensim-10": Entrant("gensim", contenders.gensim, {"passes": 10, "dtype": "int32"}),
}

#: Who uses a second core, at their fastest; judged by the clock.
TWO_CORES = {
    **{
        label: ONE_CORE[label]
        for label in (DEFAULT, QUICK, MEAN_OF_STATES, "scikit-learn-online-2000", "mallet-500")
    },
    "gensim-multicore": Entrant(
        "gensim", contenders.gensim, {"dtype": "int32", **contenders.HOFFMAN, "workers": 2}
    ),
}
ENTRANTS = {
    **ONE_CORE,
    **{
        label + ON_TWO: entrant._replace(cores=2, seeds=(3, 1))
        for label, entrant in TWO_CORES.items()
    },
}


def missing(library: str) -> str | None:
    """Return why a library cannot be measured here and what to do, or None where it can."""
    needed, remedy = NEEDS[library]
    there = needed in os.environ if needed.isupper() else find_spec(needed) is not None
    return None if there else f"{library} is not installed and not measured: {remedy}"


def compare(meter: Meter, parameters: Json, inputs: Json, seed: int) -> Json:
    """Load counts into a contender, release them, fit, and judge the topics by our code.

    Only the fit is timed. Memory is that of the process: interpreter, imports, the documents in
    the contender's own form, and the fit. Seed 0 has the documents in their order, others in one
    of their own. Topics of any kind of documents are judged by the documents as they were.
    """
    entrant = ENTRANTS[parameters["contender"]]
    options = parameters["options"]
    contender = entrant.make(parameters["n_components"], seed, **options)
    meter.started()
    counts = PlainCounts.read(inputs["counts"], parameters["documents"])
    documents = len(counts)
    if "kind" in parameters:
        counts = KINDS[parameters["kind"]](counts, seed)
    if seed and parameters["shuffled"]:
        counts = counts.shuffled(seed)
    before = time.perf_counter()
    held = contender.load(counts)
    load_seconds = time.perf_counter() - before
    del counts
    with meter.timed():
        components, alpha = contender.fit(held)
    del held
    train, held_out = (read_counts(inputs["counts"], part) for part in ("train", "held_out"))
    train = train.rows(0, documents)
    judged = quality(train, held_out, components, alpha, None)
    equal = np.full(len(components), 1 / len(components))
    judged["perplexity_equal_alpha"] = completed(train, held_out, components, equal).perplexity
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

    def __len__(self) -> int:
        return len(self.row_pointers) - 1

    def take(self, order: Any) -> PlainCounts:
        """Return the documents of these rows."""
        lengths = np.diff(self.row_pointers)[order]
        pointers = np.concatenate([[0], np.cumsum(lengths)])
        entries = np.repeat(self.row_pointers[order] - pointers[:-1], lengths)
        entries += np.arange(len(entries))
        pointers = pointers.astype(self.row_pointers.dtype)
        return PlainCounts(self.counts[entries], self.word_ids[entries], pointers, self.n_features)

    def shuffled(self, seed: int) -> PlainCounts:
        """Return the same documents in another order."""
        return self.take(np.random.default_rng(seed).permutation(len(self)))

    def repeated(self, seed: int) -> PlainCounts:
        """Return as many documents, half of them copies of twenty, as of forwarded messages."""
        n, rng = len(self), np.random.default_rng(seed)
        copies = rng.choice(rng.choice(n, COPIED), n - n // 2)
        return self.take(rng.permutation(np.concatenate([np.arange(n // 2), copies])))

    def shortened(self, seed: int) -> PlainCounts:
        """Return documents of at most six tokens of each, drawn at random, as of titles."""
        rows = np.repeat(np.arange(len(self)), np.diff(self.row_pointers))
        times = self.counts.astype(np.int64)
        rows, words = np.repeat(rows, times), np.repeat(self.word_ids, times)
        by_row = np.lexsort((np.random.default_rng(seed).random(len(rows)), rows))
        rows, words = rows[by_row], words[by_row]
        starts = np.searchsorted(rows, rows)
        kept = np.arange(len(rows)) - starts < SHORT
        cells, counts = np.unique(rows[kept] * self.n_features + words[kept], return_counts=True)
        rows, words = np.divmod(cells, self.n_features)
        pointers = np.searchsorted(rows, np.arange(len(self) + 1))
        pointers = pointers.astype(self.row_pointers.dtype)
        words, counts = words.astype(self.word_ids.dtype), counts.astype(self.counts.dtype)
        return PlainCounts(counts, words, pointers, self.n_features)


#: Documents that half of a repeated corpus are copies of, and tokens of a short document.
COPIED, SHORT = 20, 6
#: Kinds of documents that a corpus is made to, by name.
KINDS = {"repeated": PlainCounts.repeated, "short": PlainCounts.shortened}

COMPARE_TASKS = (compare,)
