"""Contenders: each imports what it needs, and says how it is given counts and how it fits.

A contender has no part in how its topics are judged: that is done by the same code for all.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

#: Topics of shape (K, V) with rows summing to 1, and alpha of shape (K,).
Topics = tuple[Any, Any]

#: Documents handed over at a time; gensim's default.
BATCH_DOCUMENTS = 2000

#: Documents that a topic of a random start is the sum of, and the share of the background in it.
RANDOM_DOCUMENTS, RANDOM_BACKGROUND = 20, 0.5

#: One pass of gensim as in the paper of the method, without estimates of its perplexity.
HOFFMAN = {"batch_documents": 256, "decay": 0.7, "offset": 10.0, "eval_every": None}

#: Sweeps between the states of tomotopy that are averaged.
STATE_SWEEPS = 5

#: Vowpal Wabbit's defaults for both priors of LDA; and the minibatch and steps of its tutorial for
#: LDA, for its defaults of these are made for regression.
VW_PRIOR = 0.1
VW_STEPS = ("--minibatch", "256", "--power_t", "0.5", "--initial_t", "1")


class Counts(Protocol):
    """Documents in compressed sparse rows, as a `DocumentBatch` has them."""

    @property
    def counts(self) -> Any: ...
    @property
    def word_ids(self) -> Any: ...
    @property
    def row_pointers(self) -> Any: ...
    @property
    def n_features(self) -> int: ...


class Contender(NamedTuple):
    """A library that fits K topics to counts; K and seed are given when it is made."""

    #: Counts to the leanest form that the library reads; it may share their arrays.
    load: Callable[[Any], Any]
    #: What `load` returned to topics.
    fit: Callable[[Any], Topics]


def engine(n_components: int, seed: int) -> Contender:
    """The spectral engine of this project, fed with batches, finding the topics at the end."""
    from streamlda.engine.engine import Engine
    from streamlda.engine.settings import EngineSettings

    def fit(documents: Any) -> Topics:
        sizes = {"n_components": n_components, "n_features": documents.n_features}
        engine = Engine(EngineSettings(**sizes, warmup_documents=20_000, seed=seed, refine=False))
        for start in range(0, len(documents), BATCH_DOCUMENTS):
            engine.add(documents.rows(start, start + BATCH_DOCUMENTS))
        model = engine.snapshot()
        return model.components, model.alpha

    return Contender(lambda documents: documents, fit)


def estimator(n_components: int, seed: int, **parameters: Any) -> Contender:
    """The scikit-learn face of this project; all that is not named is at its default."""
    from streamlda.estimator import StreamLDA

    def fit(X: Any) -> Topics:
        lda = StreamLDA(n_components, random_state=seed, **parameters).fit(X)
        return lda.components_, lda.alpha_

    return Contender(lambda documents: sparse_rows(documents, "narrowest"), fit)


def random_start(n_components: int, seed: int) -> Contender:
    """The refinement of this project, from sums of random documents in place of spectral topics."""
    from streamlda.documents import DocumentBatch
    from streamlda.model.topic_model import TopicModel
    from streamlda.refinement.refine import refine_model
    from streamlda.refinement.schedule import passes_for

    def fit(X: Any) -> Topics:
        n = min(X.shape[0], n_components * RANDOM_DOCUMENTS)
        chosen = np.random.default_rng(seed).permutation(X.shape[0])[:n]
        sums = np.vstack([X[rows].sum(axis=0) for rows in np.array_split(chosen, n_components)])
        background = normalised(X.sum(axis=0))[0]
        topics = normalised(np.asarray(sums) + background)
        model = TopicModel(
            components=topics + RANDOM_BACKGROUND * (background - topics),
            alpha=np.full(n_components, 1 / n_components),
            background=background,
            diagnostics={"start": {}, "warnings": []},
        )
        passes = passes_for(X.shape[0])
        found = refine_model(model, DocumentBatch.from_matrix(X), passes=passes)
        return found.components, found.alpha

    return Contender(lambda documents: sparse_rows(documents, "narrowest"), fit)


def gensim(
    n_components: int,
    seed: int,
    dtype: str | None = None,
    batch_documents: int = BATCH_DOCUMENTS,
    **options: Any,
) -> Contender:
    """Online variational Bayes of gensim, all else at its defaults; with `workers`, in these."""
    from gensim.matutils import Sparse2Corpus  # type: ignore[import-untyped]
    from gensim.models import LdaModel, LdaMulticore  # type: ignore[import-untyped]

    kind = LdaMulticore if "workers" in options else LdaModel

    def fit(X: Any) -> Topics:
        words = {i: str(i) for i in range(X.shape[1])}
        model = kind(
            Sparse2Corpus(X, documents_columns=False),
            num_topics=n_components,
            id2word=words,
            chunksize=batch_documents,
            random_state=seed,
            **options,
        )
        return normalised(model.get_topics()), model.alpha.astype(np.float64)

    return Contender(lambda documents: sparse_rows(documents, dtype), fit)


def scikit_learn(
    n_components: int,
    seed: int,
    passes: int = 1,
    dtype: str | None = None,
    batch_documents: int = BATCH_DOCUMENTS,
) -> Contender:
    """Online variational Bayes of scikit-learn, all else at its defaults."""
    from sklearn.decomposition import LatentDirichletAllocation

    def fit(X: Any) -> Topics:
        model = LatentDirichletAllocation(
            n_components,
            learning_method="online",
            max_iter=passes,
            batch_size=batch_documents,
            random_state=seed,
        ).fit(X)
        return normalised(model.components_), np.full(n_components, model.doc_topic_prior_)

    return Contender(lambda documents: sparse_rows(documents, dtype), fit)


def scikit_learn_online(
    n_components: int, seed: int, batch_documents: int, dtype: str | None = None
) -> Contender:
    """The same in one pass of `partial_fit`, which has no last E-step over all documents."""
    from sklearn.decomposition import LatentDirichletAllocation

    def fit(X: Any) -> Topics:
        model = LatentDirichletAllocation(
            n_components,
            batch_size=batch_documents,
            total_samples=X.shape[0],
            n_jobs=cores(),
            random_state=seed,
        ).partial_fit(X)
        return normalised(model.components_), np.full(n_components, model.doc_topic_prior_)

    return Contender(lambda documents: sparse_rows(documents, dtype), fit)


def factorisation(n_components: int, seed: int, dtype: str | None = None) -> Contender:
    """Non-negative factors of scikit-learn, which divide counts by Kullback-Leibler distance."""
    from sklearn.decomposition import NMF
    from sklearn.exceptions import ConvergenceWarning

    def fit(X: Any) -> Topics:
        kind = {"solver": "mu", "beta_loss": "kullback-leibler"}
        model = NMF(n_components, init="nndsvda", random_state=seed, **kind)
        with warnings.catch_warnings():
            # It stops at its default of 200 iterations, on some corpora too early for its taste.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X)
        return normalised(model.components_), np.full(n_components, 1 / n_components)

    return Contender(lambda documents: sparse_rows(documents, dtype), fit)


def tomotopy(
    n_components: int, seed: int, sweeps: int, eta: float = 0.01, states: int = 1
) -> Contender:
    """Gibbs sampling of tomotopy; 0.01 is its default of eta, the prior of words.

    It keeps documents inside the model; they go in as lists of words. Topics are the mean of some
    late states, five sweeps apart.
    """
    with warnings.catch_warnings():
        # Its compiled types have no module: Python says so of any library that was made this way.
        warnings.filterwarnings("ignore", "builtin type .* has no __module__", DeprecationWarning)
        import tomotopy as tp  # type: ignore[import-untyped]

    def load(documents: Counts) -> Any:
        names = np.array([str(i) for i in range(documents.n_features)], dtype=object)
        model = tp.LDAModel(k=n_components, eta=eta, seed=seed)
        for words, times in occurrences(documents):
            model.add_doc(np.repeat(names[words], times).tolist())
        return model, documents.n_features

    def fit(held: Any) -> Topics:
        model, n_features = held
        with warnings.catch_warnings():
            # Several workers do not give the same topics twice; that is asked of nobody here.
            warnings.filterwarnings("ignore", "The training result may differ", RuntimeWarning)
            model.train(sweeps - STATE_SWEEPS * (states - 1), workers=cores())
            # Words that no document uses are not in the model.
            used = [int(name) for name in model.used_vocabs]
            topics = np.zeros((n_components, n_features))
            for state in range(states):
                if state:
                    model.train(STATE_SWEEPS, workers=cores())
                for k in range(n_components):
                    topics[k, used] += model.get_topic_word_dist(k)
        return normalised(topics), np.asarray(model.alpha, dtype=np.float64)

    return Contender(load, fit)


def vowpal_wabbit(n_components: int, seed: int, passes: int = 1) -> Contender:
    """Online variational Bayes of Vowpal Wabbit; it reads a file, and further passes its cache.

    Its weights are the parameters of the topics less their prior. They start from fixed random
    numbers: no option changes these, so that every seed gives the same topics.
    """
    import vowpalwabbit  # type: ignore[import-untyped]

    def load(documents: Counts) -> Any:
        folder = tempfile.TemporaryDirectory(prefix="streamlda-bench-")
        n_documents = 0
        with (Path(folder.name) / "counts").open("w", encoding="ascii") as file:
            for words, times in occurrences(documents):
                pairs = zip(words.tolist(), times.tolist(), strict=True)
                file.write("| " + " ".join(f"{w}:{n}" for w, n in pairs) + "\n")
                n_documents += 1
        return folder, n_documents, documents.n_features

    def fit(held: Any) -> Topics:
        folder, n_documents, n_features = held
        path = str(Path(folder.name) / "counts")
        arguments = ["--quiet", "--lda", str(n_components), "--lda_D", str(n_documents), *VW_STEPS]
        arguments += ["--lda_alpha", str(VW_PRIOR), "--lda_rho", str(VW_PRIOR)]
        # A word made of digits is its own place among 2^bits.
        arguments += ["-b", str(max(1, (n_features - 1).bit_length()))]
        arguments += ["--random_seed", str(seed), "--holdout_off", "--data", path]
        if passes > 1:
            arguments += ["--passes", str(passes), "--cache_file", f"{path}.cache", "--kill_cache"]
        # Making it reads the file as often as asked.
        model = vowpalwabbit.Workspace(arg_list=arguments)
        topics = np.array(
            [[model.get_weight(w, k) for w in range(n_features)] for k in range(n_components)]
        )
        model.finish()
        folder.cleanup()
        return normalised(topics + VW_PRIOR), np.full(n_components, VW_PRIOR)

    return Contender(load, fit)


def sparse_rows(documents: Counts, dtype: str | None = None) -> Any:
    """Return counts as a CSR matrix that shares their arrays, but for counts of another dtype.

    The "narrowest" is the smallest one of whole numbers that holds them.
    """
    import scipy.sparse

    counts = documents.counts
    if dtype is not None:
        narrowest = np.min_scalar_type(int(counts.max(initial=0)))
        counts = counts.astype(narrowest if dtype == "narrowest" else dtype)
    shape = (len(documents.row_pointers) - 1, documents.n_features)
    return scipy.sparse.csr_matrix((counts, documents.word_ids, documents.row_pointers), shape)


def occurrences(documents: Counts) -> Iterator[tuple[Any, Any]]:
    """Yield words and how often they occur, for each document that has any."""
    for start, stop in pairwise(documents.row_pointers):
        if stop > start:
            yield documents.word_ids[start:stop], documents.counts[start:stop].astype(np.int64)


def cores() -> int:
    """Return how many threads a contender may have."""
    return len(os.sched_getaffinity(0))


def normalised(topics: Any) -> Any:
    topics = np.asarray(topics, dtype=np.float64)
    return topics / topics.sum(axis=1, keepdims=True)
