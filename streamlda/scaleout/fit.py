"""Topics of documents that many workers sum: one driver, whatever the engine.

The topics of the first documents are made here, by the code of `streamlda.engine.fit`; workers
refine them over all documents (`streamlda.scaleout.steps`). Unrefined topics are those of one
`Engine` over all documents in order, to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from streamlda.documents import CHECK_TEXTS, MIN_TOKENS, DocumentBatch
from streamlda.engine.alpha_0 import best_candidate, with_estimate
from streamlda.engine.engine import Engine
from streamlda.engine.fit import START_DOCUMENTS, starts
from streamlda.engine.measures import Measures, of_one_interval
from streamlda.engine.phase import Counters
from streamlda.engine.refining import LEAST_DOCUMENTS
from streamlda.engine.rounds import Rounds, round_length
from streamlda.engine.settings import WHITENED_TENSOR, EngineSettings
from streamlda.engine.warmup import (
    better_projection,
    first_projection,
    held_out_pairs,
    warmup_end,
)
from streamlda.errors import InsufficientDataError, VocabularyError, at_least, require
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.choice import (
    HELD_OUT,
    choice_of,
    chosen,
    hold_out,
    learned_before,
)
from streamlda.refinement.refine import most_prevalent_first, with_done
from streamlda.refinement.schedule import passes_for
from streamlda.scaleout.cluster import (
    Progress,
    Run,
    StoppedError,
    check_cluster,
    memory_limits,
    never,
    no_progress,
)
from streamlda.scaleout.faults import check, fault
from streamlda.scaleout.forecast import MemoryPlan
from streamlda.scaleout.shards import Corpus
from streamlda.scaleout.steps import SavedRounds, refined_in_parts
from streamlda.scaleout.store import Documents, Summed, keep_documents
from streamlda.scaleout.sums import Census, Contents, check_whole
from streamlda.scaleout.words import Beginning, read_beginning
from streamlda.spectral.topics import ESTIMATE
from streamlda.stream.counts import RecordCounts
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.threads import one_blas_thread

if TYPE_CHECKING:
    from distributed import Client

#: Under which name diagnostics say where a fit was stopped, and its values: while documents were
#: read, after that, and in the refinement.
STOPPED = "stopped"
READING, SUMS, REFINEMENT = "reading", "sums", "refinement"


@dataclass(frozen=True, eq=False)
class ClusterFit:
    """Topics that a cluster has learned, and the engine that continues from there.

    Words were learned from `vocabulary_documents`, 0 for given ones.
    """

    engine: Engine
    topics: TopicModel
    vocabulary: Vocabulary | None
    counts: RecordCounts
    vocabulary_documents: int = 0
    #: In which part of the fit the caller stopped it, if that is so.
    stopped: str | None = None

    def model(self, settings: Mapping[str, Any] | None = None) -> TopicModel:
        """Return the topics; `settings` are recorded beside the engine's own."""
        learned = {"vocabulary_documents": self.vocabulary_documents}
        recorded = {**self.topics.settings, **(learned if self.vocabulary_documents else {})}
        recorded |= settings or {}
        return replace(self.topics, vocabulary=self.vocabulary, settings=recorded)


def fit_with(
    summed_by: Summed,
    settings: EngineSettings,
    vocabulary: Vocabulary | None = None,
    *,
    shards: int,
    refinement_passes: int | None = None,
) -> TopicModel:
    """Return topics of documents that any engine sums: Spark, Ray, processes, a queue.

    Parameters
    ----------
    summed_by : callable
        Gets a stage, and returns the merged sums (`merge`) of all shards through it (`sums_of`).
    settings : EngineSettings
        `n_features` is the number of words, or of columns.
    vocabulary : Vocabulary, optional
        By which texts are read; left out where shards are counts.
    shards : int
        Number of shards, which are numbered from 0. Shards should be of like size, and each of
        about 50,000 documents, for each takes some 200 steps of a refinement. The first 20,000
        documents, which topics start from and are judged by, should be as all others are.
    refinement_passes : int, optional
        As of `StreamLDA`.

    Returns
    -------
    TopicModel

    Raises
    ------
    InsufficientDataError
        If there are fewer documents than topics, or a shard has fewer than steps.
    """
    _check(settings, refinement_passes)
    how: dict[str, Any] = {"vocabulary": vocabulary, "warmup": settings.warmup_documents}
    census = Census(spans=((0, shards),), n_features=settings.n_features, **how)
    found = summed_by(census)
    check_whole(census, found)
    documents = Documents(Contents(found), vocabulary, summed_by)
    return learn(documents, settings, refinement_passes, words=vocabulary).model()


def learn_once(
    client: Client,
    corpus: Corpus,
    settings: EngineSettings,
    vocabulary: Vocabulary | VocabularyLearner | None = None,
    *,
    refinement_passes: int | None = None,
    state_folder: str | None = None,
    on_progress: Progress = no_progress,
    on_plan: Callable[[str], None] = lambda line: None,
    should_stop: Callable[[], bool] = never,
) -> ClusterFit:
    """Learn from all shards on a cluster of Dask, each read once and kept as counts on disk.

    Time of a document O(nnz m + t^3 / 3) where it is summed, and O(nnz K) a pass. A worker takes 12
    bytes of disk for each distinct word of each document, and memory of two to three sets of sums,
    or 24 V K bytes and 32 MiB to refine; the driver takes 20,000 documents and the topics.

    Without `refinement_passes` there are none where the settings say ``refine=False``, else those
    that one process makes, kept if they predict held-out documents better than their start. With a
    learner of words, shards may be of counts too.

    Where it `should_stop` while documents are read, unrefined topics are learned of the shards that
    were read; later, of the first `START_DOCUMENTS`; in a refinement, its start is what comes out.
    Before, `InsufficientDataError` is raised. With a `state_folder`, local or a URL, a
    refinement continues from the last round in it.
    `ClusterError` if a worker has not the memory, before documents are read; `on_plan` gets a line
    that says how much it takes. Words that are still to be learned are taken to be as many as the
    settings allow.
    """
    _check(settings, refinement_passes)
    check_cluster(client)
    learner = vocabulary if isinstance(vocabulary, VocabularyLearner) else None
    words = None if isinstance(vocabulary, VocabularyLearner) else vocabulary
    n = settings.n_features if words is None else words.n_features
    MemoryPlan.of(settings, max(n, settings.n_components)).check(memory_limits(client), settings, n)
    run = Run(client, should_stop=should_stop, state_folder=state_folder)
    saved = None if state_folder is None else SavedRounds(state_folder)
    try:
        begun = Beginning(words, n) if learner is None else read_beginning(run, corpus, learner)
        words, n = begun.words, begun.n_features
        _check_words(begun, settings)
        settings = replace(settings, n_features=n)
        plan = MemoryPlan.of(settings, n)
        plan.check(limits := memory_limits(client), settings, n)
        on_plan(plan.described(limits, len(corpus.shards)))
        how: dict[str, Any] = {"read": begun.read, "on_progress": on_progress}
        with keep_documents(run, corpus, words, n, settings.warmup_documents, **how) as documents:
            if run.stopped and documents.total < _least(settings):
                raise StoppedError
            found = learn(
                documents,
                settings,
                refinement_passes,
                words=words,
                saved=saved,
                on_progress=on_progress,
                stopped=READING if run.stopped else None,
            )
            return replace(found, vocabulary_documents=begun.documents)
    except StoppedError:
        raise fault("stopped", stopped=True) from None


def _check_words(begun: Beginning, settings: EngineSettings) -> None:
    left_out = None if begun.words is None else begun.words.too_frequent
    require(
        begun.n_features >= settings.n_components,
        "there must be at least as many words as topics",
        words=begun.n_features,
        n_components=settings.n_components,
        **({} if left_out is None else {"in_too_many_documents": left_out}),
        remedy="ask for fewer topics, or learn words from more documents or with a higher "
        "max_document_frequency",
        error=VocabularyError,
    )


def _check(settings: EngineSettings, passes: int | None) -> None:
    require(
        settings.solver == WHITENED_TENSOR,
        f"shards are summed by solver={WHITENED_TENSOR!r} alone",
        solver=settings.solver,
        remedy="choose the other solver, or fit in one process",
    )
    check_unseeded(settings.seed_topics)
    if passes is not None:
        at_least(0, refinement_passes=passes)


def check_unseeded(seeds: Sequence[object]) -> None:
    """Refuse seeded topics: local steps have no prior."""
    check(not seeds, "seeds", seed_topics=len(seeds))


def learn(
    documents: Documents,
    settings: EngineSettings,
    passes: int | None,
    *,
    words: Vocabulary | None,
    saved: SavedRounds | None = None,
    on_progress: Progress = no_progress,
    stopped: str | None = None,
) -> ClusterFit:
    """Return the topics of all documents; of a fit that was `stopped`, unrefined ones."""
    _check_enough(documents, settings)
    driver = _Driver(documents, settings, passes, saved, on_progress, stopped)
    try:
        engine, model = driver.learn()
    except StoppedError:
        engine, model = driver.stop()
    if driver.stopped is not None:
        model = replace(model, diagnostics={**model.diagnostics, STOPPED: driver.stopped})
    counts = documents.contents.counts
    return ClusterFit(engine, model, words, counts, stopped=driver.stopped)


@dataclass
class _Driver:
    """The steps from documents to topics."""

    documents: Documents
    settings: EngineSettings
    passes: int | None
    saved: SavedRounds | None
    on_progress: Progress
    stopped: str | None
    #: Samples of all documents, which are taken while a shard lies on one worker.
    measures: Measures | None = None
    #: Start of a refinement, once it is made.
    start: TopicModel | None = None
    #: What alpha_0 is worth, where it was to be estimated and held-out documents were asked.
    estimate: dict[str, Any] | None = None
    #: What is said of a refinement that was not kept.
    said: dict[str, Any] = field(default_factory=dict)

    def learn(self) -> tuple[Engine, TopicModel]:
        """Return the engine that continues, and topics."""
        documents, trial = self.documents, self.settings.refines and self.passes is None
        judged = trial and documents.total >= LEAST_DOCUMENTS
        self.measures = documents.measures()
        if self.stopped is None and (judged or self.passes):
            model = with_estimate(self._refine(judged), self.estimate)
            if "refinement" in model.diagnostics:
                return self._finish(model)
            self.said = choice_of(model)
        engine = self._one_engine()
        engine.measures = self.measures
        model = engine.snapshot()
        return engine, replace(model, diagnostics={**model.diagnostics, **self.said})

    def stop(self) -> tuple[Engine, TopicModel]:
        """Return what a refinement begins from."""
        self.stopped = SUMS if self.start is None else REFINEMENT
        if self.start is None:
            first = self.documents.rows(0, START_DOCUMENTS)
            self.start = self._starts(first)(self.settings.working_alpha_0)
        return self._finish(self.start)

    def _finish(self, model: TopicModel) -> tuple[Engine, TopicModel]:
        """Return topics that continue by likelihood, with their measures."""
        measures = self.measures or self.documents.measures()
        if "refinement" in model.diagnostics:
            model = of_one_interval(most_prevalent_first(model, measures.samples))
        else:
            model = measures.published(model)
        return Engine.of_model(self.settings, model, measures), model

    def _refine(self, judged: bool) -> TopicModel:
        """Return a start, refined over all documents; or as it is, where that is better.

        Where it is judged, documents are held out among as many more than it is made of, and
        alpha_0 is one that suits them.
        """
        documents, asked = self.documents, self.settings.alpha_0
        rows = documents.rows(0, START_DOCUMENTS + len(HELD_OUT) * judged)
        known, held_out = hold_out(rows) if judged else (rows, rows)
        make_start = self._starts(known.rows(0, START_DOCUMENTS))
        if judged:
            found, self.estimate = best_candidate(
                *(make_start, asked, known, held_out, passes_for(len(known)))
            )
            self.start = found.start
        else:
            start = make_start(self.settings.working_alpha_0)
            self.start = replace(start, settings={**start.settings, "alpha_0": asked})
        counts, learned = documents.contents.counts, documents.total
        # Twice the passes that sweeps follow.
        passes = 2 * passes_for(learned_before(learned)) if self.passes is None else self.passes
        refinement, done = refined_in_parts(
            *(documents, self.start, passes),
            skips_held_out=judged,
            saved=self.saved,
            on_round=lambda *rounds: self.on_progress(REFINEMENT, counts, *rounds),
        )
        start = self.start
        if judged:
            averaged = replace(start, components=refinement.components)
            start, kept = chosen(start, averaged, held_out, known)
            if not kept:
                return start
            refinement.add(held_out)
            refinement.flush()
        return with_done(replace(start, components=refinement.components), done)

    def _one_engine(self) -> Engine:
        """Return an engine as if it had been given the documents in order.

        It has the projection of the warm-up documents at first, and takes a better one whenever a
        round is full. Time O(nnz m + t^3 / 3) a document; here O(d m^2) a round.
        """
        documents, settings = self.documents, self.settings
        # Its sums are those of an engine that does not refine.
        settings = replace(settings, refine=None if settings.refines else settings.refine)
        used = documents.contents.warmup(settings.warmup_documents)
        warmup = documents.rows(0, used)
        warmup = warmup.rows(0, warmup_end(warmup, 0, used))
        with one_blas_thread():
            held_out = held_out_pairs(warmup, settings)
            whitening = first_projection(warmup, settings)
        used, last = warmup.n_documents, documents.total
        finished, rounds, begin = None, 0, 0
        while True:
            length = round_length(used, first=rounds == 0)
            end = min(begin + length, last)
            how = settings, whitening
            current = documents.moments(begin, end, *how)
            if end - begin < length:
                break
            # The round is full, and the next one begins, if only with its projection.
            finished, rounds, used, begin = current, rounds + 1, end - begin, end
            with one_blas_thread():
                whitening = better_projection(current, settings)
        counts = documents.contents.counts
        counters = Counters(
            documents_seen=last,
            documents_skipped=counts.short,
            tokens_seen=counts.tokens - counts.unseen_tokens,
            rounds_finished=rounds,
            projection_documents=used,
        )
        asked = self.estimate is not None and settings.alpha_0 is None
        choice = {ESTIMATE: self.estimate} if asked else {}
        rounds_ = Rounds(settings, counters, current, finished, held_out, choice=choice)
        return Engine.of_phase(rounds_)

    def _starts(self, known: DocumentBatch) -> Callable[[float], TopicModel]:
        """Return what makes starts for an alpha_0, with counts and frequencies of all documents."""
        make_start = starts(self.settings, known)
        contents, counts = self.documents.contents, self.documents.contents.counts

        def make(alpha_0: float) -> TopicModel:
            start = make_start(alpha_0)
            return replace(
                start,
                background=contents.frequencies / contents.frequencies.sum(),
                diagnostics={**start.diagnostics, "documents_skipped": counts.short},
                documents_seen=self.documents.total,
                tokens_seen=counts.tokens - counts.unseen_tokens,
            )

        return make


def _least(settings: EngineSettings) -> int:
    """Return the fewest documents that topics are made of."""
    return max(2, settings.n_components)


def _check_enough(documents: Documents, settings: EngineSettings) -> None:
    counts = documents.contents.counts
    require(
        documents.total >= _least(settings),
        f"there must be at least as many documents of {MIN_TOKENS} known words as topics",
        usable=documents.total,
        topics=settings.n_components,
        documents=counts.documents,
        short=counts.short,
        **{f"rejects_{reason}": n for reason, n in sorted(counts.rejects.items())},
        remedy=f"ask for fewer topics, or {CHECK_TEXTS}",
        error=InsufficientDataError,
    )
