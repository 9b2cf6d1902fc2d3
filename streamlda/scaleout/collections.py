"""``StreamLDA`` on collections: Dask's bags, arrays and data frames, and data frames of Spark.

Texts are read by words that are learned from the first of them, as by ``streamlda fit``: the 8000
most frequent without English stop words. Counts must be integers, with equal columns in all
partitions. Nothing is computed here but the first documents, the merges and the topics.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import astuple
from itertools import chain
from typing import Any

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.fit import START_DOCUMENTS
from streamlda.errors import InsufficientDataError
from streamlda.model.evaluation import CompletionResult
from streamlda.model.faults import check as check_halves
from streamlda.model.topic_model import TopicModel
from streamlda.scaleout.cluster import require_dask
from streamlda.scaleout.faults import check, fault
from streamlda.scaleout.fit import fit_with, learn_once
from streamlda.scaleout.shards import Shard, of_partitions, rows_of, task_of
from streamlda.scaleout.sums import Stage, Sums, merge, sums_of
from streamlda.settings.build import choose_passes, fit_settings
from streamlda.settings.table import RunSettings
from streamlda.stream.vocabulary_choice import VocabularyLearner


def is_collection(X: Any) -> bool:
    """Return whether `X` is a collection of Dask, a list of them, or a data frame of Spark."""
    if is_frame(X):
        return True
    if "dask.base" not in sys.modules:
        return False
    from dask.base import is_dask_collection

    parts, distributed = X if isinstance(X, list | tuple) else [X], sys.modules.get("distributed")
    future: Any = () if distributed is None else distributed.Future
    return bool(parts) and all(is_dask_collection(p) or isinstance(p, future) for p in parts)


def is_frame(X: Any) -> bool:
    """Return whether `X` is a data frame of Spark."""
    return "pyspark" in sys.modules and type(X).__module__.startswith("pyspark.sql")


def current_client() -> Any:
    """Return the client that Dask was last given, or raise `ClusterError`."""
    require_dask()
    from distributed import default_client

    try:
        client: Any = default_client()  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise fault("client", current_client=None) from error
    check(client.status == "running", "answer", client_status=client.status)
    return client


def fit_collection(estimator: Any, X: Any, users: Any, analyzer: Any) -> None:
    """Fit a `StreamLDA` to a collection: of Dask on the current client, of Spark where it is.

    Without a refinement, topics are those of the same fit to the whole matrix, to rounding; with
    one they are as good as those of its passes, without sweeps (`streamlda.scaleout.fit`).
    """
    settings = estimator._settings(estimator._seed(), users)
    about = {"epsilon": estimator.epsilon, "users": None if users is None else len(users)}
    check(not settings.private and users is None, "private collection", **about)
    check(not settings.topics.seeds, "seeds", seed_topics=len(settings.topics.seeds))
    passes = choose_passes(settings.topics)
    if isinstance(passes, str):
        raise fault("effort", refinement_passes=passes)
    if is_frame(X):
        _fit_frame(estimator, settings, X, passes, analyzer)
        return
    words = VocabularyLearner.by(analyzer, estimator.n_components)
    asked = fit_settings(settings, words.size)
    found = learn_once(current_client(), of_partitions(X), asked, words, refinement_passes=passes)
    _set(estimator, found.model, found.engine)


def _fit_frame(
    estimator: Any, settings: RunSettings, frame: Any, passes: int | None, analyzer: Any
) -> None:
    """Fit a data frame of Spark, whose one column has the texts; they are encoded once."""
    texts = texts_of(frame)
    learner = VocabularyLearner.by(analyzer, estimator.n_components)
    words = learner.learn([row[0] or "" for row in frame.take(START_DOCUMENTS)])
    asked = fit_settings(settings, words.n_features)
    disk = sys.modules["pyspark"].StorageLevel.DISK_ONLY
    counts = texts.mapPartitions(lambda own: [words.encode([*own]).batch]).persist(disk)

    def sum_stage(stage: Stage) -> Sums:
        sent = counts.context.broadcast(stage)

        def fold(number: int, documents: Iterator[Any]) -> list[Sums]:
            (batch,) = documents
            return [sums_of(batch, sent.value, shard=number)]

        found: Sums = counts.mapPartitionsWithIndex(fold).treeReduce(merge)
        sent.unpersist()
        return found

    try:
        how = {"shards": counts.getNumPartitions(), "refinement_passes": passes}
        model = fit_with(sum_stage, asked, words, **how)
    finally:
        counts.unpersist()
    _set(estimator, model, Engine.of_model(asked, model))


def texts_of(frame: Any) -> Any:
    """Return the texts of a data frame of Spark that has one column of them."""
    columns = ",".join(f"{name}:{kind}" for name, kind in frame.dtypes)
    check([kind for _, kind in frame.dtypes] == ["string"], "frame", columns=columns)
    return frame.rdd.map(lambda row: row[0] or "")


def _set(estimator: Any, model: TopicModel, learner: Engine | None) -> None:
    """Replace all that an estimator has learned."""
    columns: dict[str, Any] = {"n_features_in_": model.n_features}
    if model.vocabulary is not None and model.vocabulary.words is not None:
        columns["vocabulary_"] = model.vocabulary
    estimator._keep(learner, model, columns)


def apply_to(function: Callable[[Any], Any], X: Any) -> Any:
    """Apply a function to the texts or counts of each partition; the result is lazy.

    A list of results for each partition: of Dask as tasks in a list, of Spark as one data set.
    """
    if is_frame(X):
        return texts_of(X).mapPartitions(lambda texts: [[function([*texts])]])
    from dask.delayed import delayed

    def apply(value: Any) -> list[Any]:
        shard = Shard("partition")
        with task_of(shard):
            return [
                function(rows.to_csr() if isinstance(rows, DocumentBatch) else [*rows.texts])
                for rows in rows_of(shard, value)
            ]

    call: Any = delayed(apply, pure=False)
    return [call(value) for value in of_partitions(X).values]


def transform_collection(estimator: Any, X: Any) -> Any:
    """Return topic proportions: an array of Dask of unknown length, or rows of Spark (an RDD)."""
    topics, found = len(estimator.components_), apply_to(estimator.transform, X)
    if is_frame(X):
        return found.flatMap(np.concatenate)
    from dask import array
    from dask.delayed import delayed

    def stack(parts: list[Any]) -> Any:
        return np.vstack([np.zeros((0, topics)), *parts])

    make: Any = delayed(stack, pure=False)
    of_block: Any = array.from_delayed
    together: Any = array.concatenate
    blocks = [of_block(make(own), (np.nan, topics), np.float64) for own in found]
    return together(blocks, allow_unknown_chunksizes=True)


def complete_collection(estimator: Any, X: Any) -> CompletionResult:
    """Return how held-out halves of the documents of each partition are predicted, in all."""

    def complete(rows: Any) -> CompletionResult:
        # A partition may have no document of two tokens.
        with suppress(InsufficientDataError):
            return estimator._completion(rows)  # type: ignore[no-any-return]
        return CompletionResult(0.0, 0.0, 0, 0)

    found = apply_to(complete, X)
    if is_frame(X):
        found = found.collect()
    else:
        client: Any = current_client()
        found = client.gather(client.compute(found))
    # All of it are sums.
    results = map(astuple, chain.from_iterable(found))
    result = CompletionResult(*map(sum, zip(*results, strict=True)))
    check_halves(result.held_out_tokens, "halves", held_out_tokens=0)
    return result


def learn_parts(estimator: Any, X: Any, analyzer: Any) -> None:
    """Let an estimator learn further partitions, which come here one after the other."""
    found = apply_to(lambda rows: rows, X)
    if is_frame(X):
        found = found.toLocalIterator()
    else:
        client: Any = current_client()
        found = (client.compute(part).result() for part in found)
    for rows in chain.from_iterable(found):
        estimator.partial_fit(rows, analyzer=analyzer)
        analyzer = None
