"""Topics of documents that many workers sum: one driver, whatever the engine.

The topics of the first documents are made here, by the code of `streamlda.engine.fit`; workers
refine them over all documents. Unrefined topics are those of one `Engine` over all documents in
order, to rounding.

In a round of a refinement every one of L parts takes the next steps of a `StepwiseEM` over its own
documents, beginning from the topics of all; then the sums S of the parts are averaged. What a part
adds in a step is additive and bounded, its weights depend on the number of the step alone, so the
mean is S of minibatches L times as large, but for topics that are some steps old.
"""

import tempfile
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
import numpy as np
from numpy.typing import NDArray

from streamlda.container import parse_arrays, write_arrays
from streamlda.documents import DocumentBatch
from streamlda.engine.alpha_0 import best_candidate, with_estimate
from streamlda.engine.engine import Engine
from streamlda.engine.fit import START_DOCUMENTS, starts
from streamlda.engine.measures import Measures, of_one_interval
from streamlda.engine.phase import Counters
from streamlda.engine.projections import warmup_end
from streamlda.engine.refining import LEAST_DOCUMENTS
from streamlda.engine.rounds import Rounds
from streamlda.engine.settings import WHITENED_TENSOR, EngineSettings
from streamlda.errors import at_least
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.choice import choice_of, choose_model, hold_out, spread
from streamlda.refinement.refine import most_prevalent_first, with_done
from streamlda.refinement.schedule import LocalSchedule, limit_annealing, passes_for
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.scaleout.cluster import Progress, Run, StoppedError, check_cluster, plan_memory
from streamlda.scaleout.faults import check, fault
from streamlda.scaleout.shards import Corpus
from streamlda.scaleout.store import keep_documents, read_beginning
from streamlda.scaleout.sums import Census, Documents, Refine, Stage, Sums, check_whole, cut
from streamlda.spectral.topics import ESTIMATE
from streamlda.stream.counts import RecordCounts
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import Tree, join_state, split_state
from streamlda.utils.threads import one_blas_thread

#: Under which name diagnostics say what the end of a fit cut short: reading, or the refinement.
STOPPED = "stopped"

#: File of a round of a refinement.
KIND, FORMAT_VERSION, NAME = "refinement-round", 3, "refinement.state"


class ClusterFit(NamedTuple):
    """Topics that a cluster has learned, and the engine that continues from there."""

    engine: Engine
    model: TopicModel
    counts: RecordCounts


def fit_with(
    summed_by: Callable[[Stage], Sums],
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
        Words of the columns, for the model.
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
    how: dict[str, Any] = {"n_features": settings.n_features, "vocabulary": vocabulary}
    census = Census(spans=((0, shards),), learns_short=settings.refines, **how)
    found = summed_by(census)
    check_whole(census, found)
    documents = Documents(census, [met for _, met in found.parts], summed_by)
    return _Driver(documents, settings, refinement_passes).learn().model


def learn_once(
    client: Any,
    corpus: Corpus,
    settings: EngineSettings,
    vocabulary: Vocabulary | VocabularyLearner | None = None,
    *,
    refinement_passes: int | None = None,
    state_folder: str | None = None,
    on_progress: Progress = lambda *_: None,
    on_plan: Callable[[str], None] = lambda line: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> ClusterFit:
    """Learn from all shards on a cluster of Dask, each read once and kept as counts on disk.

    Time of a document O(nnz m + t^3 / 3) where it is summed, and O(nnz K) a pass; the driver takes
    20,000 documents and the topics. Where it `should_stop`, the start of a refinement comes out,
    topics of the first `START_DOCUMENTS` that were read. With a `state_folder`, local or a URL, a
    refinement continues from the last round in it. `on_plan` gets a line about memory.
    """
    _check(settings, refinement_passes)
    check_cluster(client)
    words = vocabulary if isinstance(vocabulary, Vocabulary) else None
    width, shards = settings.n_features if words is None else words.n_features, len(corpus.shards)
    plan_memory(client, settings, max(width, settings.n_components), shards)
    about, how = dict[str, Any](), dict[str, Any]()

    def parts(documents: int) -> int:
        return LocalSchedule.of(
            documents, refinement_passes or 2 * passes_for(max(1, documents))
        ).parts

    run = Run(client, should_stop=should_stop, state_folder=state_folder)
    saved = None if state_folder is None else SavedRounds(state_folder)
    try:
        if isinstance(vocabulary, VocabularyLearner):
            words, width, learned_from, how["read"] = read_beginning(run, corpus, vocabulary)
            about = {"vocabulary_documents": learned_from} if learned_from else {}
        topics = settings.n_components
        check(width >= topics, "few words", words=width, n_components=topics)
        settings = replace(settings, n_features=width)
        on_plan(plan_memory(client, settings, width, shards))
        how |= {"n_features": width, "vocabulary": words, "learns_short": settings.refines}
        with keep_documents(run, corpus, parts=parts, on_progress=on_progress, **how) as documents:
            if run.stopped and documents.total < max(2, topics):
                raise StoppedError
            driver = _Driver(documents, settings, refinement_passes, saved, on_progress)
            found = driver.learn(stopped=run.stopped)
    except StoppedError:
        raise fault("stopped", stopped=True) from None
    model = replace(found.model, settings={**found.model.settings, **about})
    return found._replace(model=model)


def _check(settings: EngineSettings, passes: int | None) -> None:
    check(settings.solver == WHITENED_TENSOR, "solver", solver=settings.solver)
    # Local steps have no prior.
    check(not settings.seed_topics, "seeds", seed_topics=len(settings.seed_topics))
    if passes is not None:
        at_least(0, refinement_passes=passes)


@dataclass
class _Driver:
    """The steps from documents to topics."""

    documents: Documents
    settings: EngineSettings
    passes: int | None
    saved: "SavedRounds | None" = None
    on_progress: Progress = lambda *_: None
    #: Start of a refinement, once it is made.
    start: TopicModel | None = None
    #: What alpha_0 is worth, where it was to be estimated and held-out documents were asked.
    estimate: dict[str, Any] | None = None

    @cached_property
    def held_out(self) -> NDArray[np.int64]:
        """Numbers of the documents that judge a refinement; none where it is not judged."""
        judged = self.settings.refines and self.passes is None
        judged = judged and self.documents.total >= LEAST_DOCUMENTS
        return spread(self.documents.total) if judged else np.zeros(0, np.int64)

    @cached_property
    def samples(self) -> Sums:
        """Samples, word frequencies and held-out documents."""
        return self.documents.samples(self.held_out)

    @property
    def measures(self) -> Measures:
        """The samples that topics are measured in."""
        assert self.samples.measures is not None
        return self.samples.measures

    @cached_property
    def first_documents(self) -> DocumentBatch:
        """The first documents, without those held out."""
        rows = self.documents.rows(0, START_DOCUMENTS + len(self.held_out))
        return hold_out(rows, 0, self.held_out)[0]

    @cached_property
    def make_start(self) -> Callable[[float], TopicModel]:
        """Function from an alpha_0 to a start, with counts and frequencies of all documents."""
        make_start, counts = starts(self.settings, self.first_documents), self.documents.counts
        frequencies = self.samples.arrays["frequencies"]

        def make(alpha_0: float) -> TopicModel:
            start = make_start(alpha_0)
            return replace(
                start,
                background=frequencies / frequencies.sum(),
                diagnostics={**start.diagnostics, "documents_skipped": counts.short},
                documents_seen=self.documents.total,
                tokens_seen=counts.tokens - counts.unseen_tokens,
            )

        return make

    def learn(self, *, stopped: bool = False) -> ClusterFit:
        """Return the topics of all documents; of a fit that was `stopped`, unrefined ones."""
        documents, settings, counts = self.documents, self.settings, self.documents.counts
        met = {"usable": documents.total, "topics": settings.n_components}
        met |= {"documents": counts.documents, "short": counts.short}
        met |= {f"rejects_{reason}": n for reason, n in sorted(counts.rejects.items())}
        check(documents.total >= max(2, settings.n_components), "few usable", **met)
        try:
            if stopped:
                raise StoppedError
            engine, model = self._learn_all()
        except StoppedError:
            engine, model = self._finish(self.start or self.make_start(settings.working_alpha_0))
            said = {STOPPED: "reading" if stopped else "refinement"}
            model = replace(model, diagnostics={**model.diagnostics, **said})
        return ClusterFit(engine, replace(model, vocabulary=documents.census.vocabulary), counts)

    def _learn_all(self) -> tuple[Engine, TopicModel]:
        """Return the engine that continues, and topics of all documents."""
        said = dict[str, Any]()
        if len(self.held_out) or self.passes:
            model = with_estimate(self._refine(), self.estimate)
            if "refinement" in model.diagnostics:
                return self._finish(model)
            said = choice_of(model)
        engine = self._one_engine()
        engine.measures = self.measures
        model = engine.snapshot()
        return engine, replace(model, diagnostics={**model.diagnostics, **said})

    def _finish(self, model: TopicModel) -> tuple[Engine, TopicModel]:
        """Return topics that continue by likelihood, with their measures."""
        if "refinement" in model.diagnostics:
            model = of_one_interval(most_prevalent_first(model, self.measures.samples))
        else:
            model = self.measures.complete(model)
        return Engine.of_model(self.settings, model, self.measures), model

    def _refine(self) -> TopicModel:
        """Return a start, refined over all documents; or as it is, where that is better.

        Where it is judged, alpha_0 is one that suits the held-out documents.
        """
        asked, known, judged = self.settings.alpha_0, self.first_documents, len(self.held_out) > 0
        held_out = DocumentBatch.joined([part for _, part in self.samples.parts])
        if judged:
            given = self.make_start, asked, known, held_out, passes_for(len(known))
            found, self.estimate = best_candidate(*given)
            start = found.start
        else:
            start = self.make_start(self.settings.working_alpha_0)
            start = replace(start, settings={**start.settings, "alpha_0": asked})
        self.start = start
        refinement, done = self._run_rounds(start)
        if judged:
            averaged = replace(start, components=refinement.components)
            start, kept = choose_model(start, averaged, held_out, known)
            if not kept:
                return start
            refinement.add(held_out)
            refinement.flush()
        return with_done(replace(start, components=refinement.components), done)

    def _run_rounds(self, start: TopicModel) -> tuple[StepwiseEM, dict[str, Any]]:
        """Return the refinement of a start after all its rounds, and a record of them.

        A fit that died comes to the same start, and continues behind the last round saved: its
        topics are those of a fit that was never cut short, to the last bit.
        """
        documents, counts = self.documents, self.documents.counts
        # Twice the passes that sweeps follow.
        passes = self.passes or 2 * passes_for(documents.total)
        parts = documents.spans
        plan = LocalSchedule.of(documents.total, passes, len(parts))
        least, steps = min(last - first for first, last in parts), plan.rounds * plan.steps
        check(least >= steps, "few documents", documents=least, steps=steps, shards=len(parts))
        plan = replace(plan, settings=limit_annealing(plan.settings, start))
        given = start.components, start.alpha, start.background
        refinement, rounds = StepwiseEM.of_topics(*given, plan.settings), 0
        hashed = blake2b(repr((astuple(plan), parts[-1])).encode(), digest_size=16)
        for array in given:
            hashed.update(array.tobytes())
        digest, total = hashed.hexdigest(), passes * plan.rounds
        if self.saved is not None and (before := self.saved.load(digest)) is not None:
            rounds, refinement = before[0], StepwiseEM.from_state(before[1])
        while rounds < total:
            spans = [cut(part, plan.rounds)[rounds % plan.rounds] for part in parts]
            how = {"state": refinement.state(), "steps": plan.steps, "held_out": self.held_out}
            found = documents.sum_stage(Refine, *spans, **how).arrays
            refinement = StepwiseEM(
                found["totals"] / plan.parts,
                *(refinement.alpha, refinement.background, refinement.settings),
                steps=refinement.steps + plan.steps,
                documents=refinement.documents + int(found["documents"]),
            )
            rounds += 1
            if self.saved is not None:
                self.saved.save(digest, rounds, refinement.state())
            self.on_progress("refinement", counts, rounds, total)
        done = {"documents": documents.total + counts.few_words, "passes": passes, "sweeps": 0}
        done |= {"steps": refinement.steps, "batch_documents": plan.settings.batch_documents}
        return refinement, {**done, "lanes": plan.parts, "rounds": total}

    def _one_engine(self) -> Engine:
        """Return an engine as if it had been given the documents in order.

        It has the projection of the warm-up documents at first, and a better one behind each round.
        """
        documents, settings, counts = self.documents, self.settings, self.documents.counts
        # Its sums are those of an engine that does not refine.
        settings = replace(settings, refine=None if settings.refines else settings.refine)
        tokens = counts.tokens - counts.unseen_tokens
        counters = Counters(documents.total, counts.short, tokens)
        warmup = documents.rows(0, settings.warmup_documents)
        with one_blas_thread():
            end = warmup_end(warmup, 0, settings.warmup_documents)
            rounds = Rounds.begin(settings, counters, warmup.rows(0, end))
        at = rounds.current.documents
        while at < documents.total:
            end = min(at + rounds.documents_left, documents.total)
            rounds.current.merge(documents.moments(at, end, rounds.current))
            at = end
            with one_blas_thread():
                rounds.next()
        if self.estimate is not None and settings.alpha_0 is None:
            rounds.choice = {ESTIMATE: self.estimate}
        return Engine.of_phase(rounds)


class SavedRounds:
    """The newest round, in a folder or at a URL that fsspec can write: as secret as documents."""

    def __init__(self, folder: str) -> None:
        self._system, self._folder = fsspec.core.url_to_fs(folder)
        self._path = f"{str(self._folder).rstrip('/')}/{NAME}"

    def load(self, digest: str) -> tuple[int, Tree] | None:
        """Return how many rounds of this start were made, and the state then; None before any."""
        if not self._system.exists(self._path):
            return None
        data = self._system.cat_file(self._path)
        found = parse_arrays(data, KIND, FORMAT_VERSION, self._path)
        check(found.metadata["digest"] == digest, "state", folder=self._folder)
        return int(found.metadata["rounds"]), join_state(found.arrays, found.metadata["values"])

    def save(self, digest: str, rounds: int, state: Tree) -> None:
        """Take the place of what was saved, in one step."""
        arrays, values = split_state(state)
        about: dict[str, Any] = {"digest": digest, "rounds": rounds, "values": values}
        self._system.makedirs(self._folder, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            # Elsewhere an object takes its name when it is whole.
            local = "file" in self._system.protocol
            path = Path(self._path) if local else Path(folder, NAME)
            write_arrays(path, KIND, FORMAT_VERSION, arrays, about, mode=0o600)
            if not local:
                self._system.put_file(str(path), self._path)
