"""``StreamLDA.fit`` of a Dask collection: bags, arrays and delayed matrices, on the current client.

::

    client = distributed.Client("tcp://scheduler:8786")    # or Client(), for this machine
    StreamLDA(n_components=50).fit(bag_of_texts)

Texts are read by words that are learned from the first of them, as by ``streamlda fit``: the 8000
most frequent without English stop words. They become `feature_names_in_`, so that `to_model` gives
a model that reads texts. Counts must be integers, with equal columns in all partitions.

Nothing is computed here but the beginning, the merges and the topics, and no part of a collection
comes here but its first documents (`streamlda.scaleout.beginning`). A private fit draws its noise
once, here, after the ledger was paid.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from streamlda.checks import failure, require
from streamlda.engine.engine import Engine
from streamlda.errors import InvalidDocumentsError
from streamlda.model.topic_model import TopicModel
from streamlda.private.published import few_topics
from streamlda.scaleout.beginning import first_columns
from streamlda.scaleout.cluster import ClusterError, Run, require_dask
from streamlda.scaleout.fit import check_unseeded, learn_once
from streamlda.scaleout.private import fit_privately, row_counts
from streamlda.scaleout.shards import Corpus, of_partitions
from streamlda.settings.build import choose_passes, fit_settings, window_settings
from streamlda.settings.run_settings import RunSettings
from streamlda.stream.vocabulary_choice import VocabularyLearner, check_texts_given

if TYPE_CHECKING:
    from distributed import Client


def is_collection(X: Any) -> bool:
    """Return whether `X` is a Dask collection or a list of them; Dask is never imported for it."""
    if "dask.base" not in sys.modules:
        return False
    from dask.base import is_dask_collection

    if isinstance(X, list | tuple):
        return bool(X) and all(is_dask_collection(part) or _is_future(part) for part in X)
    return bool(is_dask_collection(X))


def _is_future(part: Any) -> bool:
    distributed = sys.modules.get("distributed")
    return distributed is not None and isinstance(part, distributed.Future)


def of_collection(X: Any) -> Corpus:
    """Return the shards of a collection: its partitions, in order.

    Bags may be of texts, or of sparse matrices or rows of counts; arrays in blocks of whole rows,
    sparse or dense; what is delayed, lists of texts or matrices of counts.
    """
    from dask.delayed import Delayed

    if isinstance(X, Delayed):
        return of_partitions([X])
    if not isinstance(X, list | tuple):
        return of_partitions(X)
    for part in X:
        require(
            isinstance(part, Delayed) or _is_future(part),
            "a list must hold what Dask makes one partition of each",
            type=type(part).__name__,
            remedy="pass the bag or array itself, or its to_delayed()",
            error=InvalidDocumentsError,
        )
    return of_partitions(list(X))


def current_client() -> Client:
    """Return the client that Dask was last given, or raise `ClusterError`."""
    require_dask()
    from distributed import default_client

    try:
        client: Any = default_client()  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise ClusterError(
            "a Dask collection must be learned from on a cluster, got no current client; make one "
            'first: distributed.Client("tcp://host:8786"), or distributed.Client() for the cores '
            "of this machine"
        ) from error
    require(
        client.status == "running",
        "a Dask scheduler must answer",
        client_status=client.status,
        remedy="start the scheduler, and make a new client",
        error=ClusterError,
    )
    return client  # type: ignore[no-any-return]


def fit_collection(estimator: Any, X: Any, users: Any, analyzer: Any) -> None:
    """Fit a `StreamLDA` to a collection on the current client.

    Without a refinement, topics are those of the same fit to the whole matrix, to rounding; with
    one they are as good as those of its passes, without sweeps (`streamlda.scaleout.local_steps`).
    With `epsilon`, releases are number for number those of one process
    (`streamlda.scaleout.private`). Errors are those of `learn_once` and `fit_privately`.
    """
    settings = estimator._settings(estimator._seed(), users)
    require(
        users is None,
        "users must be counted in one place, got users with a Dask collection",
        remedy="fit a matrix",
    )
    client, corpus = current_client(), of_collection(X)
    n_features = first_columns(Run(client), corpus)
    check_unseeded(settings.topics.seeds)
    if settings.private:
        _fit_privately(estimator, settings, client, corpus, n_features)
        return
    words = None
    if n_features is None:
        words = VocabularyLearner.by(analyzer, estimator.n_components)
    check_texts_given(analyzer, words is not None, X)
    asked = fit_settings(settings, n_features or settings.vocabulary.size)
    passes = choose_passes(settings.topics)
    require(
        not isinstance(passes, str),
        "quick and thorough fits must be made in one process",
        refinement_passes=passes,
        remedy="set it to 'auto' or a number for a Dask collection",
    )
    assert not isinstance(passes, str)
    found = learn_once(client, corpus, asked, words, refinement_passes=passes)
    model = found.model()
    engine = found.engine
    if found.refined is not None:
        # As after a fit in one process, further rows go on from here.
        engine = Engine.of_model(engine.settings, model, engine.measures)
    _set(estimator, model, engine)


def _fit_privately(
    estimator: Any, settings: RunSettings, client: Client, corpus: Corpus, n_features: int | None
) -> None:
    from streamlda.private.release_manager import ReleaseManager, open_ledger

    if n_features is None:
        raise failure(
            "a private fit must be of counts, for words learned from texts reveal them",
            epsilon=estimator.epsilon,
            remedy="encode them by public words first, as in "
            "bag.map_partitions(lambda texts: [vocabulary.encode(list(texts)).batch])",
        )
    slots = None
    if settings.snapshots.every is None:
        slots = sum(row_counts(Run(client), corpus))
    asked, public = window_settings(settings, n_features, slots)
    path = settings.privacy.ledger
    with nullcontext() if path is None else open_ledger(path, asked) as ledger:
        releaser = ReleaseManager(estimator._new_noise(), ledger, estimator.stream)
        model = fit_privately(client, corpus, asked, releaser, public=public)
    _set(estimator, model, None)
    for message in few_topics(model.n_components, estimator.n_components):
        warnings.warn(message, UserWarning, stacklevel=4)


def _set(estimator: Any, model: TopicModel, learner: Engine | None) -> None:
    """Replace all that an estimator has learned."""
    columns: dict[str, Any] = {"n_features_in_": model.n_features}
    if model.vocabulary is not None and model.vocabulary.words is not None:
        columns["vocabulary_"] = model.vocabulary
    estimator._keep(learner, model, columns)
