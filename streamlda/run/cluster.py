"""A fit on a Dask cluster: workers read the files and sum; words, topics and noise are made here.

Counts and unrefined topics are those of `streamlda.run.fit.fit` to rounding, refined topics as
good, and private releases number for number the same: terms, prices, the name of the stream and the
record slots too, so that the ledger knows the documents again wherever they are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

from streamlda.model.topic_model import TopicModel
from streamlda.run.fit import FitResult
from streamlda.run.opening import CUT_SHORT, OpenedRun, open_ledger, open_pipeline, open_store
from streamlda.run.parts import RejectsFile, file_options, skip_records
from streamlda.run.proportions import Proportions, infer
from streamlda.scaleout import (
    ClusterFit,
    Corpus,
    Progress,
    connect,
    learn_once,
    never,
    no_progress,
    of_files,
    summed_stages,
)
from streamlda.scaleout.cluster import Run
from streamlda.scaleout.faults import check
from streamlda.scaleout.shards import Shard, rows_of, task_of
from streamlda.settings.build import engine_settings, most_words
from streamlda.settings.run_settings import RunSettings
from streamlda.storage.snapshots import NamedModel
from streamlda.storage.store import Store
from streamlda.stream.listing import name_part
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.source import RecordBatch, Source
from streamlda.stream.vocabulary_choice import PrivateVocabularySelection

#: Records from all over the files that stand at the beginning: a refinement begins with 20,000
#: documents, and 1,000 of the first ones are held out.
BEGINNING = 24_000


def fit_on_cluster(
    settings: RunSettings,
    *,
    on_progress: Progress = no_progress,
    warn: Callable[[str], None] = lambda message: None,
    on_opened: Callable[[], None] = lambda: None,
    on_plan: Callable[[str], None] = lambda line: None,
    should_stop: Callable[[], bool] = never,
) -> FitResult:
    """Learn topics on the cluster of the settings; `on_opened` is called before any payment."""
    start, address, stopped = time.monotonic(), settings.cluster.dask, None
    assert address is not None
    with ExitStack() as opened:
        store = opened.enter_context(open_store(settings, checkpoints=False))
        ledger = open_ledger(settings, opened, store, lambda ended: warn(CUT_SHORT + ended))
        run = open_pipeline(settings, store, ledger, warn=warn)
        pipeline = run.pipeline
        client = opened.enter_context(connect(address))
        # Refined topics begin with documents from all files; others are those of one process.
        mixed = BEGINNING if not settings.private and settings.topics.refine is not False else 0
        corpus = of_files(
            settings.source.files,
            file_options(settings),
            shards=settings.cluster.shards,
            beginning=mixed,
        )
        if run.ledger is not None:
            _check_unspent(run)
            on_opened()
            try:
                with closing(run.open_source(settings)) as source:
                    model = _fit_privately(client, corpus, run, store, source, on_progress)
            except BaseException:
                if message := run.spending:
                    warn(message)
                raise
        else:
            found = _fit(client, corpus, pipeline, settings, on_progress, on_plan, should_stop)
            stopped = found.stopped
            model = found.model(pipeline.facts())
            store.publish(model)
            if settings.source.rejects is not None:
                with RejectsFile(settings.source.rejects) as file:
                    for reject in found.rejects:
                        file.write(reject)
    return FitResult.of(
        model,
        pipeline,
        time.monotonic() - start,
        stopped=stopped is not None,
        stored_bytes=corpus.stored_bytes,
    )


def _fit(
    client: Any,
    corpus: Corpus,
    pipeline: Pipeline[Any],
    settings: RunSettings,
    on_progress: Progress,
    on_plan: Callable[[str], None],
    should_stop: Callable[[], bool],
) -> ClusterFit:
    """Learn from all files, and bring the pipeline to their end."""
    words, path = pipeline.words, settings.topics.projection_file
    assert not isinstance(words, PrivateVocabularySelection)
    check(path is None, "projection", path=path)
    if pipeline.learner is None:
        asked = engine_settings(settings, most_words(settings.vocabulary))
    else:
        asked = pipeline.learner.settings
    found = learn_once(
        client,
        corpus,
        asked,
        words,
        names_rejects=settings.source.rejects is not None,
        state_folder=settings.checkpoint.folder,
        on_progress=on_progress,
        on_plan=on_plan,
        should_stop=should_stop,
    )
    assert found.vocabulary is not None
    pipeline.counts, pipeline.vocabulary_documents = found.counts, found.vocabulary_documents
    pipeline.take(found.vocabulary, found.engine)
    return found


def _fit_privately(
    client: Any,
    corpus: Corpus,
    run: OpenedRun,
    store: Store,
    source: Source,
    on_progress: Progress,
) -> TopicModel:
    """Make all releases that the files suffice for; the `source` is read here for the ledger."""
    pipeline = run.pipeline
    newest, missed = None, ""
    if run.released is not None:
        newest, missed = run.released.model, run.released.missed
        if newest is not None:
            store.publish(newest)
    assert pipeline.learner is not None
    assert run.census is not None
    run.skip(source)
    slots = run.census.slots
    for met in summed_stages(client, corpus, pipeline.learner, pipeline.vocabulary, slots=slots):
        pipeline.counts.update(met)
        skip_records(source, met.records, pipeline, released=False)
        on_progress("reading", pipeline.counts, pipeline.counts.records, 0)
        if pipeline.due == 0 or pipeline.ends_well:
            released = pipeline.release()
            missed = released.missed or missed
            if released.model is not None:
                newest = released.model
                store.publish(newest)
    if newest is None:
        raise pipeline.make_shortage_error(missed)
    return newest


def _check_unspent(run: OpenedRun) -> None:
    """Refuse files of which a part is spent: workers count slots from the first record of each."""
    spent = 0 if run.census is None else run.census.spent
    check(not spent, "spent", released=spent)


#: Records without texts, and the proportions of those that have one.
Inferred = tuple[RecordBatch, Proportions]


class InferredFiles:
    """A source of files whose topic proportions are inferred on a cluster, shard by shard in order.

    Texts stay on the workers: a record that has one has an empty text here.
    """

    def __init__(self, settings: RunSettings, named: NamedModel, top: int | None) -> None:
        self.found = Proportions([], [], [])
        address, source = settings.cluster.dask, settings.source
        assert address is not None
        with ExitStack() as opened:
            client = opened.enter_context(connect(address))
            corpus = of_files(source.files, file_options(settings), shards=settings.cluster.shards)
            self._run = Run(client)
            sent = self._run.start([self._run.given(named)])
            tasks = [self._run.task("infer", _infer, *sent, s, top) for s in corpus.shards]
            self._shards = self._run.start(tasks)
            self._opened = opened.pop_all()
        self._polls: list[Inferred] = []
        readings = [reading for shard in corpus.shards for reading in shard.readings]
        self._parts = {name_part(r.names[0], r.part): r.names[0] for r in readings if r.part}
        self._before = dict[str, int]()

    def poll(self, most: int, timeout: float) -> RecordBatch:
        """Return the next records, numbered in their files in place of parts of them."""
        while not self._polls and self._shards:
            shard = self._shards.pop(0)
            self._polls = self._run.compute(self._run.task("answer", _answer, shard))
            self._run.release([shard])
            self._number(self._polls)
        if not self._polls:
            return RecordBatch(exhausted=True)
        batch, self.found = self._polls.pop(0)
        return batch

    def close(self) -> None:
        """Leave the cluster."""
        self._opened.close()

    def _number(self, polls: list[Inferred]) -> None:
        # Parts of one file follow each other.
        ends = dict[str, int]()
        for batch, _ in polls:
            for n, reject in enumerate(batch.rejects):
                if name := self._parts.get(reject.location):
                    number = self._before.get(name, 0) + reject.record
                    batch.rejects[n] = reject._replace(location=name, record=number)
            for n, at in enumerate(batch.locations):
                if name := self._parts.get(at.location):
                    ends[name] = self._before.get(name, 0) + at.record
                    batch.locations[n] = at._replace(location=name, record=ends[name])
        self._before |= ends


def _infer(named: NamedModel, shard: Shard, top: int | None) -> list[Inferred]:
    """Return the records of a shard without texts, and their proportions. A task; pure."""
    found: list[Inferred] = []
    with task_of(shard):
        for rows in rows_of(shard, None):
            assert isinstance(rows, RecordBatch)
            texts = [None if text is None else "" for text in rows.texts]
            proportions = infer(named, rows.documents, top)
            found.append((replace(rows, texts=texts), proportions))
    return found


def _answer(found: list[Inferred]) -> list[Inferred]:
    return found
