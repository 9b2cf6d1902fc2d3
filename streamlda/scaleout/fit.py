"""Topics from the documents of all shards, the same as from one process over all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import at_least
from streamlda.documents import MIN_TOKENS
from streamlda.engine.engine import Engine
from streamlda.engine.fit import START_DOCUMENTS
from streamlda.engine.refining import needed_passes
from streamlda.engine.settings import WHITENED_TENSOR, EngineSettings
from streamlda.errors import InsufficientDataError, InvalidSettingError
from streamlda.model.topic_model import TopicModel
from streamlda.scaleout.beginning import Words, begin
from streamlda.scaleout.cluster import Run, check_cluster
from streamlda.scaleout.kept import keep
from streamlda.scaleout.lanes import refined_on
from streamlda.scaleout.rounds import one_engine
from streamlda.scaleout.shards import (
    SHARDS,
    Corpus,
    Reading,
    of_files,
    of_partitions,
)
from streamlda.scaleout.sums import Plan, Sums, accumulate, added, merged
from streamlda.stream.ingest import Counts
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from distributed import Client

#: Rounds over the documents. On 195,000 abstracts held-out perplexity over that of one process in
#: one pass was 1.03 with 1 round, 1.00 with 2, 0.95 with 3, 0.94 with 4 (K=50); 1.03, 1.01 and 0.98
#: with 1, 2 and 3 (K=20).
ROUNDS = 3

#: Where rounds do not know how many documents the shards before have, each shard numbers its
#: documents from another place, so that the halves of no two shards are dealt alike.
_APART = 2**40


@dataclass(frozen=True, eq=False)
class Learned:
    """What a cluster has learned.

    Attributes
    ----------
    engine : Engine
        Of `learn`: with the documents of all shards and a shared map; to be merged with others, or
        asked. Of `learn_once`: as of one process, or what a refinement began from.
    vocabulary : Vocabulary or None
        None if the shards are counts and none was given.
    counts : Counts
        What was met.
    vocabulary_documents : int
        Documents that the words were learned from; 0 for given ones.
    seconds : float
        Wall-clock time.
    refined : TopicModel or None
        After a refinement.
    """

    engine: Engine
    vocabulary: Vocabulary | None
    counts: Counts
    vocabulary_documents: int
    seconds: float
    refined: TopicModel | None = None

    def model(self, settings: Mapping[str, Any] | None = None) -> TopicModel:
        """Return the topics; `settings` are recorded beside the engine's own."""
        learned = {"vocabulary_documents": self.vocabulary_documents}
        recorded = {**learned, **(settings or {})}
        if self.refined is None:
            return self.engine.snapshot(self.vocabulary, recorded)
        recorded = {**self.refined.settings, **recorded}
        return replace(self.refined, vocabulary=self.vocabulary, settings=recorded)


def fit_files(
    client: Client,
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    settings: EngineSettings,
    vocabulary: Vocabulary | VocabularyLearner,
    *,
    reading: Reading | None = None,
    shards: int = SHARDS,
    **options: Any,
) -> TopicModel:
    """Learn topics from files on a cluster: `of_files`, then `learn` with all `options`."""
    corpus = of_files(paths, reading, shards=shards)
    return learn(client, corpus, settings, vocabulary, **options).model()


def fit_partitions(
    client: Client,
    partitions: Any,
    settings: EngineSettings,
    vocabulary: Words = None,
    **options: Any,
) -> TopicModel:
    """Learn topics from partitions: `of_partitions`, then `learn` with all `options`."""
    corpus = of_partitions(partitions)
    return learn(client, corpus, settings, vocabulary, **options).model()


def learn(
    client: Client,
    corpus: Corpus,
    settings: EngineSettings,
    vocabulary: Words = None,
    *,
    shared_projection: NDArray[np.float64] | None = None,
    rounds: int | None = None,
    on_progress: Callable[[str, Counts], None] | None = None,
) -> Learned:
    """Learn from all shards on a cluster; only the sums and the first documents come here.

    After a sketch the sums are, to rounding, those of one `Engine` with the same map over all
    documents in order, and so are the topics: on one worker or many, whatever was lost on the way.
    With one round the halves that noise is measured by are others, and still random.

    Rounds before the last are sketches: all documents are read for a better map. Time of a
    document O(nnz m) a sketch and O(nnz m + t^3 / 3) at last; memory of a worker two to three sets
    of arrays (`Sums`) and a block of documents or a partition; of the driver one set, the first
    documents, and the map twice.

    Parameters
    ----------
    client : distributed.Client
        From `connect`, or of any cluster. Workers with one thread each serve best.
    corpus : Corpus
        From `of_files` or `of_partitions`.
    settings : EngineSettings
        For the solver ``"whitened-tensor"``. With a vocabulary, `n_features` is not looked at: it
        becomes the number of its words.
    vocabulary : Vocabulary or WordsToLearn, optional
        Needed for texts; words are learned from the first documents, as in one process.
    shared_map : ndarray of shape (d, m), optional
        W, to be kept: then the engine can be merged with others that share it.
    rounds : int, optional
        Rounds over the documents, at least 1: 3 by default, 1 with a shared map.
    on_progress : callable of (str, Counts), optional
        Called as shards are done, with the likes of ``"round 1 of 3"`` and what was met in it.

    Raises
    ------
    ClusterError
        If the cluster has no worker, other versions, or is lost.
    InsufficientDataError
        If there are fewer documents of at least 3 known words than topics.
    InvalidDocumentsError, VocabularyError
        If texts come without a vocabulary, or shards have other columns than it.
    InvalidSettingError
        If the solver makes maps of its own, or a number is out of range.
    SourceError
        If a file cannot be read. Nothing is kept then of what was learned.
    """
    begun = perf_counter()
    rounds = (1 if shared_projection is not None else ROUNDS) if rounds is None else rounds
    _check(settings, rounds, shared_projection)
    check_cluster(client)
    beginning = begin(Run(client), corpus, settings, vocabulary, shared_projection)
    plan = beginning.plan
    before = [number * _APART for number in range(len(corpus.shards))]
    for number in range(1, rounds):
        report = _labelled(on_progress, f"round {number} of {rounds}")
        sketch = _round(client, replace(plan, triple_columns=0), corpus, before, report)
        _check_enough(sketch.documents, sketch.counts, settings)
        usable = [sketch.usable[shard.name] for shard in corpus.shards]
        before = np.cumsum([0, *usable[:-1]]).tolist()
        better = sketch.engine(plan).better_projection()
        plan = replace(plan, whitening=better)
    report = _labelled(on_progress, f"round {rounds} of {rounds}")
    sums = _round(client, plan, corpus, before, report)
    _check_enough(sums.documents, sums.counts, settings)
    return Learned(
        sums.engine(plan),
        plan.vocabulary,
        sums.counts,
        beginning.vocabulary_documents,
        perf_counter() - begun,
    )


def learn_once(
    client: Client,
    corpus: Corpus,
    settings: EngineSettings,
    vocabulary: Words = None,
    *,
    refinement_passes: int | None = None,
    most_bytes: float | None = None,
    on_progress: Callable[[str, Counts], None] | None = None,
) -> Learned:
    """Learn from all shards as one process does, each read once and kept with the workers.

    Without a refinement the topics are those of one `Engine` over all documents in order, to
    rounding.

    Time of a document O(nnz m + t^3 / 3) where it is summed, and O(nnz K) a pass. Memory of a
    worker: its documents as counts (12 bytes for each distinct word of each), if all of them fit
    into `most_bytes`; two to three sets of arrays (`Sums`); 24 V K bytes and 32 MiB to refine.

    Parameters
    ----------
    client, corpus, settings, vocabulary
        As `learn`.
    refinement_passes : int, optional
        How often the documents are gone over again, 0 for none. If it is left out, 0 where the
        settings say ``refine=False``, else what one process decides for such topics and so many
        documents (`streamlda.engine.refining.needed_passes`).
    most_bytes : float, optional
        What documents may take on all workers together: 0.4 of the workers' memory limits by
        default. If they take more, none is kept, and they are read again in every round.
    on_progress : callable of (str, Counts), optional
        As `learn`.

    Raises
    ------
    ClusterError, InsufficientDataError, InvalidDocumentsError, InvalidSettingError, SourceError,
    VocabularyError
        As `learn`.
    """
    begun = perf_counter()
    _check(settings, 1, None)
    if refinement_passes is not None:
        at_least(0, refinement_passes=refinement_passes)
    check_cluster(client)
    passes = refinement_passes if settings.refines or refinement_passes else 0
    # The sums of a start are taken by an engine that does not refine.
    settings = replace(settings, refine=None if settings.refines else settings.refine)
    beginning = begin(Run(client), corpus, settings, vocabulary, None)
    plan = beginning.plan
    with keep(
        client,
        corpus,
        plan.vocabulary,
        plan.settings.n_features,
        most_bytes=most_bytes,
        on_progress=on_progress,
    ) as kept:
        found = kept.found
        _check_enough(kept.documents, found.counts, settings)
        # What documents are read by is in what was kept of them.
        beginning = replace(beginning, plan=replace(plan, vocabulary=kept.vocabulary))
        last = min(START_DOCUMENTS, kept.documents)
        engine, refined = None, None
        if passes != 0:
            engine = one_engine(kept, beginning, last)
            start = engine.snapshot()
            passes = needed_passes(start, kept.documents) if passes is None else passes
            if passes:
                start = replace(
                    start,
                    background=found.frequencies / found.frequencies.sum(),
                    diagnostics={**start.diagnostics, "documents_skipped": found.skipped},
                    documents_seen=kept.documents,
                    tokens_seen=found.tokens,
                )
                refined = refined_on(kept, start, passes, on_progress)
        if engine is None or (refined is None and last < kept.documents):
            engine = one_engine(kept, beginning, kept.documents)
    return Learned(
        engine,
        plan.vocabulary,
        found.counts,
        beginning.vocabulary_documents,
        perf_counter() - begun,
        refined,
    )


def _check(
    settings: EngineSettings, rounds: int, shared_projection: NDArray[np.float64] | None
) -> None:
    if settings.solver != WHITENED_TENSOR:
        raise InvalidSettingError(
            f"shards are summed by solver={WHITENED_TENSOR!r} alone, got "
            f"solver={settings.solver!r}, which asks the stream anew after each answer; choose "
            "the other solver, or fit in one process"
        )
    if rounds < 1 or (rounds > 1 and shared_projection is not None):
        raise InvalidSettingError(
            "there must be at least 1 round, and 1 with a shared map, got "
            f"rounds={rounds} shared_projection={shared_projection is not None}; leave rounds out"
        )


def _check_enough(documents: int, counts: Counts, settings: EngineSettings) -> None:
    if documents < max(2, settings.n_components):
        rejects = "".join(f" {reason}={n}" for reason, n in sorted(counts.rejects.items()))
        raise InsufficientDataError(
            f"there must be at least as many documents of {MIN_TOKENS} known words as topics, got "
            f"usable={documents} topics={settings.n_components} documents={counts.documents} "
            f"short={counts.short}{rejects}; ask for fewer topics, or check the text field, the "
            "token pattern and the vocabulary"
        )


def _round(
    client: Client,
    plan: Plan,
    corpus: Corpus,
    before: list[int],
    on_progress: Callable[[Counts], None] | None,
) -> Sums:
    """Sum all shards by a plan, in one graph."""
    run = Run(client)
    kind = "sums" if plan.triple_columns else "sketch"
    shared = run.given(plan)
    leaves = [
        run.task(kind, accumulate, shared, shard, run.given(value), start)
        for shard, value, start in zip(corpus.shards, corpus.values, before, strict=True)
    ]
    met: list[Counts] = []

    def report(counts: Counts) -> None:
        met.append(counts)
        assert on_progress is not None
        on_progress(added(met))

    reports = [run.task("met", _counts_of, leaf) for leaf in leaves] if on_progress else []
    found: Sums = run.compute(
        run.tree("merge", merged, leaves), reports, report if on_progress else None
    )
    if [*found.usable] != [shard.name for shard in corpus.shards]:
        raise InvalidSettingError(
            "sums must be of every shard, each once, got "
            f"shards={len(found.usable)} expected={len(corpus.shards)}; give each its own name"
        )
    return found


def _labelled(
    on_progress: Callable[[str, Counts], None] | None, label: str
) -> Callable[[Counts], None] | None:
    return None if on_progress is None else lambda counts: on_progress(label, counts)


def _counts_of(sums: Sums) -> Counts:
    return sums.counts
