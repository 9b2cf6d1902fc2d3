"""Topics from the documents of all shards, the same as from one process over all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import at_least, failure, require
from streamlda.documents import CHECK_TEXTS, MIN_TOKENS
from streamlda.engine.alpha_0 import tested_alpha_0, with_estimate
from streamlda.engine.engine import Engine
from streamlda.engine.fit import START_DOCUMENTS
from streamlda.engine.measures import of_one_interval
from streamlda.engine.refining import LEAST_DOCUMENTS
from streamlda.engine.settings import WHITENED_TENSOR, EngineSettings
from streamlda.errors import InsufficientDataError
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.choice import choice_of
from streamlda.refinement.refine import most_prevalent_first
from streamlda.refinement.schedule import passes_for
from streamlda.scaleout.beginning import Beginning, Words, begin
from streamlda.scaleout.cluster import (
    Progress,
    Run,
    StoppedError,
    check_cluster,
    memory_limits,
    never,
    no_progress,
)
from streamlda.scaleout.files import numbered
from streamlda.scaleout.local_steps import refined_on
from streamlda.scaleout.memory import MemoryPlan
from streamlda.scaleout.resume import SavedRounds
from streamlda.scaleout.rounds import one_engine
from streamlda.scaleout.shards import Corpus
from streamlda.scaleout.store import (
    MOST_KEPT,
    Documents,
    DocumentStore,
    LearnedDocuments,
    measures_of,
    store_documents,
)
from streamlda.scaleout.sums import Plan, Sums, accumulate, merged
from streamlda.stream.counts import RecordCounts
from streamlda.stream.source import Reject
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from distributed import Client

#: Rounds over the documents. On 195,000 abstracts held-out perplexity over that of one process in
#: one pass was 1.03 with 1 round, 1.00 with 2, 0.95 with 3, 0.94 with 4 (K=50); 1.03, 1.01 and 0.98
#: with 1, 2 and 3 (K=20).
ROUNDS = 3

#: Where rounds do not know how many documents the shards before have, each shard numbers its
#: documents from another number, so that the halves of no two shards are dealt alike.
_APART = 2**40

#: Under which name diagnostics say where a fit was stopped, and its values: while documents were
#: read, after that, and in the refinement.
STOPPED = "stopped"
READING, SUMS, REFINEMENT = "reading", "sums", "refinement"


@dataclass(frozen=True, eq=False)
class ClusterFit:
    """What a cluster has learned.

    `engine`, of `learn` or with a shared projection, has the documents of all shards, and can be
    merged with others; of `learn_once` it is as of one process, or what a refinement began from.
    Words were learned from `vocabulary_documents`, 0 for given ones. `said` goes to the diagnostics
    of its topics. `rejects`, where they are named, stand in the order of files and records.
    """

    engine: Engine
    vocabulary: Vocabulary | None
    counts: RecordCounts
    vocabulary_documents: int
    refined: TopicModel | None = None
    said: Mapping[str, Any] = field(default_factory=dict)
    rejects: Sequence[Reject] = ()
    #: What alpha_0 is worth, where it was to be estimated and documents set aside were asked.
    estimate: dict[str, Any] | None = None

    @property
    def stopped(self) -> str | None:
        """In which part of the fit the caller stopped it, if that is so."""
        return self.said.get(STOPPED)

    def model(self, settings: Mapping[str, Any] | None = None) -> TopicModel:
        """Return the topics; `settings` are recorded beside the engine's own."""
        learned = {"vocabulary_documents": self.vocabulary_documents}
        recorded = {**(learned if self.vocabulary_documents else {}), **(settings or {})}
        if self.refined is None:
            model = self.engine.snapshot(self.vocabulary, recorded)
        else:
            recorded = {**self.refined.settings, **recorded}
            model = replace(self.refined, vocabulary=self.vocabulary, settings=recorded)
        model = replace(model, diagnostics={**model.diagnostics, **self.said})
        return with_estimate(model, self.estimate)


def learn(
    client: Client,
    corpus: Corpus,
    settings: EngineSettings,
    vocabulary: Words = None,
    *,
    shared_projection: NDArray[np.float64] | None = None,
    rounds: int | None = None,
    on_progress: Progress = no_progress,
) -> ClusterFit:
    """Learn from all shards on a cluster; only the sums and the first documents come here.

    After a sketch the sums are, to rounding, those of one `Engine` with the same projection over
    all documents in order, and so are the topics: on one worker or many, whatever was lost on the
    way. With one round the halves that noise is measured by are others, and still random.

    Rounds before the last (3 by default, one alone with a shared projection) are sketches: all
    documents are read for a better projection. Texts need a vocabulary, whose size then replaces
    `n_features`; words are learned from the first documents, as in one process. `on_progress` gets
    the likes of ``"round 1 of 3"`` and what was met in it. Workers with one thread each serve best.

    Time of a document O(nnz m) a sketch and O(nnz m + t^3 / 3) at last; memory of a worker two to
    three sets of arrays (`Sums`) and a block of documents or a partition; of the driver one set,
    the warm-up documents, and the projection twice. If anything fails, nothing is kept.
    """
    rounds = (1 if shared_projection is not None else ROUNDS) if rounds is None else rounds
    _check_solver(settings)
    require(
        rounds == 1 or (rounds > 1 and shared_projection is None),
        "there must be at least 1 round, and 1 with a shared projection",
        rounds=rounds,
        shared_projection=shared_projection is not None,
        remedy="leave rounds out",
    )
    check_cluster(client)
    run = Run(client)
    beginning = begin(run, corpus, settings, vocabulary, shared_projection)
    plan = beginning.plan
    run.release([*beginning.read.values()])
    before = [number * _APART for number in range(len(corpus.shards))]
    for number in range(1, rounds + 1):
        last = number == rounds
        label, own = f"round {number} of {rounds}", plan
        if not last:
            own = replace(plan, triple_columns=0)
        sums = _round(client, own, corpus, before, label, on_progress)
        _check_enough(sums.documents, sums.counts, settings)
        if not last:
            usable = [sums.usable[shard.name] for shard in corpus.shards]
            before = np.cumsum([0, *usable[:-1]]).tolist()
            plan = replace(plan, whitening=sums.engine(plan).better_projection())
    return ClusterFit(
        sums.engine(plan, beginning.held_out),
        plan.vocabulary,
        sums.counts,
        beginning.vocabulary_documents,
    )


def check_unseeded(seeds: Sequence[object]) -> None:
    """Refuse seeded topics: local steps have no prior."""
    require(
        not seeds,
        "seeded topics must be learned in one process",
        seed_topics=len(seeds),
        remedy="leave them out on a cluster",
    )


def learn_once(
    client: Client,
    corpus: Corpus,
    settings: EngineSettings,
    vocabulary: Words = None,
    *,
    shared_projection: NDArray[np.float64] | None = None,
    refinement_passes: int | None = None,
    most_bytes: float | None = None,
    names_rejects: bool = False,
    state_folder: str | None = None,
    limits: Sequence[float] | None = None,
    on_progress: Progress = no_progress,
    on_plan: Callable[[str], None] = lambda line: None,
    should_stop: Callable[[], bool] = never,
) -> ClusterFit:
    """Learn from all shards as one process does, each read once and kept with the workers.

    Without a refinement the topics are those of one `Engine` over all documents in order, to
    rounding.

    Time of a document O(nnz m + t^3 / 3) where it is summed, and O(nnz K) a pass. Memory of a
    worker: its documents as counts (12 bytes for each distinct word of each), if all of them fit
    into `most_bytes` (0.4 of the memory limits of all workers by default); else they are read again
    in every round. Two to three sets of arrays (`Sums`); 24 V K bytes and 32 MiB to refine.

    With a shared projection nothing is refined. Without `refinement_passes` there are none where
    the settings say ``refine=False``, else those that one process makes, kept as it keeps them: if
    they predict documents set aside better than their start.

    Where it `should_stop` while documents are read, unrefined topics are learned of the shards that
    were read; later, of the first `START_DOCUMENTS`; in a refinement, its start is what comes out.
    `said` has ``stopped`` then. Before, `InsufficientDataError` is raised. Rejects come out if they
    are to be named, 10,000 a shard. With a `state_folder`, local or a URL, a refinement goes on
    from the last round that is in it.
    `ClusterError` if a worker has not the memory, before documents are read; `on_plan` gets a line
    that says how much it takes. With `limits`, of `limits_with_room`, the cluster was checked.
    """
    _check_solver(settings)
    check_unseeded(settings.seed_topics)
    if refinement_passes is not None:
        at_least(0, refinement_passes=refinement_passes)
    if limits is None:
        check_cluster(client)
        limits = limits_with_room(client, settings, vocabulary)
    refines = settings.refines and shared_projection is None
    trial = refines and refinement_passes is None
    # The sums of a start are taken by an engine that does not refine.
    settings = replace(settings, refine=None if settings.refines else settings.refine)
    run = Run(client, should_stop=should_stop)
    saved = None if state_folder is None else SavedRounds(state_folder)
    try:
        beginning = begin(run, corpus, settings, vocabulary, shared_projection, trial=trial)
        words, n_features = beginning.plan.vocabulary, beginning.plan.settings.n_features
        plan = _check_memory(limits, beginning.plan.settings, words)
        kept = min(MOST_KEPT * sum(limits), plan.room(limits)) if most_bytes is None else most_bytes
        on_plan(plan.described(limits, kept, len(corpus.shards)))
        with store_documents(
            run,
            corpus,
            words,
            n_features,
            limits=limits,
            most_bytes=kept,
            read=beginning.read,
            names_rejects=names_rejects,
            on_progress=on_progress,
        ) as store:
            if run.stopped and store.documents < _least(settings):
                raise StoppedError
            _check_enough(store.documents, store.contents.counts, settings)
            refine = partial(_refined, on_progress=on_progress, saved=saved)
            how = trial, refinement_passes, refine
            try:
                return _fit_stored(store, beginning, *how, READING if run.stopped else None)
            except StoppedError:
                return _fit_stored(store, beginning, *how, SUMS)
    except StoppedError:
        raise failure(
            "a run must go on until some shard was read and topics were made",
            stopped=True,
            remedy="nothing was saved: start it again",
            error=InsufficientDataError,
        ) from None


def limits_with_room(client: Client, settings: EngineSettings, vocabulary: Words) -> list[float]:
    """Return the memory limits of all workers; `ClusterError` if one has not the memory.

    Words that are still to be learned are not known: then all limits come back.
    """
    limits = memory_limits(client)
    if not isinstance(vocabulary, VocabularyLearner):
        _check_memory(limits, settings, vocabulary)
    return limits


def _check_memory(
    limits: Sequence[float], settings: EngineSettings, words: Vocabulary | None
) -> MemoryPlan:
    n_features = settings.n_features if words is None else words.n_features
    plan = MemoryPlan.of(settings, n_features)
    plan.check(limits, settings, n_features)
    return plan


def _fit_stored(
    store: DocumentStore,
    beginning: Beginning,
    trial: bool,
    refinement_passes: int | None,
    refine: Callable[..., TopicModel | None],
    stopped: str | None,
) -> ClusterFit:
    """Return topics of stored documents; where the fit was `stopped`, unrefined ones."""
    if trial:
        warmup = store.beginning(beginning.plan.settings.warmup_documents)
        beginning = replace(beginning, warmup=warmup).of_warmup(trial=True)
    measures, learned = measures_of(store), LearnedDocuments(store)
    estimate = None
    asked = beginning.plan.settings
    unknown = asked.alpha_0 is None and asked.refines and beginning.warmup is not None
    if unknown and stopped is None and learned.documents >= LEAST_DOCUMENTS:
        models = _start_of(learned, beginning).with_alpha_0
        aside = store.run.compute(learned.aside)
        if estimate := tested_alpha_0(models, asked.n_components, aside):
            settings = replace(asked, alpha_0=estimate["value"])
            beginning = replace(beginning, plan=replace(beginning.plan, settings=settings))
    engine, refined, said = None, None, dict[str, Any]()
    if stopped == SUMS:
        engine = one_engine(store, beginning, min(START_DOCUMENTS, store.documents))
    elif stopped is None and trial and store.documents >= LEAST_DOCUMENTS:
        engine = _start_of(learned, beginning)
        start = with_estimate(_of_all(engine.snapshot(), store), estimate)
        passes = passes_for(learned.documents)
        rival = None
        if learned.documents > START_DOCUMENTS:
            rival = partial(_spectral, learned, beginning)
        refined = refine(learned, start, passes, rival=rival)
        if refined is None:
            stopped = REFINEMENT
        elif "refinement" not in refined.diagnostics:
            said, refined = choice_of(refined), None
    elif stopped is None and refinement_passes:
        last = min(START_DOCUMENTS, store.documents)
        engine = one_engine(store, beginning, last)
        start = _of_all(engine.snapshot(), store)
        refined = refine(store, start, refinement_passes)
        stopped = REFINEMENT if refined is None else None
    if refined is not None:
        refined = of_one_interval(most_prevalent_first(refined, measures.samples))
    elif engine is not None and stopped is not None:
        engine.measures = measures
        refined = _of_all(engine.snapshot(), store)
    else:
        beginning = beginning.of_warmup(trial=False) if trial else beginning
        engine = one_engine(store, beginning, store.documents)
    assert engine is not None
    said |= {} if stopped is None else {STOPPED: stopped}
    engine.measures = measures
    found, words = store.contents, beginning.plan.vocabulary
    learned_from = beginning.vocabulary_documents
    rejects = numbered(found.rejects, found.places)
    return ClusterFit(engine, words, found.counts, learned_from, refined, said, rejects, estimate)


def _start_of(learned: LearnedDocuments, beginning: Beginning) -> Engine:
    """Return the engine of the first documents, whose topics a refinement starts from."""
    return one_engine(learned, beginning, min(START_DOCUMENTS, learned.documents))


def _refined(
    documents: Documents,
    start: TopicModel,
    passes: int,
    *,
    on_progress: Progress,
    saved: SavedRounds | None,
    rival: Callable[[], TopicModel] | None = None,
) -> TopicModel | None:
    """Return refined topics, or the start where that is better; None where the caller stops it."""
    try:
        return refined_on(documents, start, passes, on_progress, rival, saved)
    except StoppedError:
        return None


def _spectral(learned: LearnedDocuments, beginning: Beginning) -> TopicModel:
    return one_engine(learned, beginning, learned.documents).snapshot()


def _of_all(start: TopicModel, store: DocumentStore) -> TopicModel:
    """Return a model of the first documents with the counts and frequencies of all of them."""
    found, counts = store.contents, store.contents.counts
    return replace(
        start,
        background=found.frequencies / found.frequencies.sum(),
        diagnostics={**start.diagnostics, "documents_skipped": counts.short},
        documents_seen=store.documents,
        tokens_seen=counts.tokens - counts.unseen_tokens,
    )


def _check_solver(settings: EngineSettings) -> None:
    require(
        settings.solver == WHITENED_TENSOR,
        f"shards are summed by solver={WHITENED_TENSOR!r} alone",
        solver=settings.solver,
        remedy="the others read the stream again after each answer: choose the other solver, or "
        "fit in one process",
    )


def _least(settings: EngineSettings) -> int:
    """Return the fewest documents that topics are made of."""
    return max(2, settings.n_components)


def _check_enough(documents: int, counts: RecordCounts, settings: EngineSettings) -> None:
    require(
        documents >= _least(settings),
        f"there must be at least as many documents of {MIN_TOKENS} known words as topics",
        usable=documents,
        topics=settings.n_components,
        documents=counts.documents,
        short=counts.short,
        **{f"rejects_{reason}": n for reason, n in sorted(counts.rejects.items())},
        remedy=f"ask for fewer topics, or {CHECK_TEXTS}",
        error=InsufficientDataError,
    )


def _round(
    client: Client, plan: Plan, corpus: Corpus, before: list[int], label: str, on_progress: Progress
) -> Sums:
    """Sum all shards by a plan, in one graph."""
    run = Run(client)
    kind = "sums" if plan.triple_columns else "sketch"
    shared, total, done = run.given(plan), RecordCounts(), 0
    leaves = [
        run.task(kind, accumulate, shared, shard, run.given(value), start)
        for shard, value, start in zip(corpus.shards, corpus.values, before, strict=True)
    ]

    def report(counts: RecordCounts) -> None:
        nonlocal done
        total.update(counts)
        done += 1
        on_progress(label, total, done, len(leaves))

    reports = [run.task("report", attrgetter("counts"), leaf) for leaf in leaves]
    found: Sums = run.compute(run.tree("merge", merged, leaves), reports, report)
    require(
        [*found.usable] == [shard.name for shard in corpus.shards],
        "sums must be of every shard, each once",
        shards=len(found.usable),
        expected=len(corpus.shards),
        remedy="give each its own name",
    )
    return found
