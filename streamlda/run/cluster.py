"""A fit on a Dask cluster: workers read the files and sum; words, topics and noise are made here.

Counts and unrefined topics are those of `streamlda.run.fit.fit` to rounding, refined topics as
good, and private releases the same, with their prices, record slots and the name of the stream.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

from streamlda.model.topic_model import TopicModel
from streamlda.run.fit import FitResult
from streamlda.run.opening import CUT_SHORT, OpenedRun, open_ledger, open_pipeline, open_store
from streamlda.run.parts import file_options, skip_records
from streamlda.run.proportions import Rows, infer
from streamlda.scaleout import Corpus, Progress, connect, learn_once, of_files, sum_stages
from streamlda.scaleout.cluster import Run
from streamlda.scaleout.faults import check
from streamlda.scaleout.fit import STOPPED
from streamlda.scaleout.shards import Shard, rows_of, task_of
from streamlda.settings.build import engine_settings, most_words
from streamlda.settings.table import RunSettings
from streamlda.storage.snapshots import NamedModel
from streamlda.storage.store import Store
from streamlda.stream.listing import name_part
from streamlda.stream.source import Progress as SourceProgress
from streamlda.stream.source import RecordBatch
from streamlda.stream.vocabulary_choice import PrivateVocabularySelection


def fit_on_cluster(
    settings: RunSettings,
    *,
    on_progress: Progress = lambda *_: None,
    warn: Callable[[str], None] = lambda message: None,
    on_opened: Callable[[], None] = lambda: None,
    on_plan: Callable[[str], None] = lambda line: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> FitResult:
    """Learn topics on the cluster of the settings; `on_opened` is called before any payment."""
    start = time.monotonic()
    with ExitStack() as opened:
        store = opened.enter_context(open_store(settings, checkpoints=False))
        ledger = open_ledger(settings, opened, store, lambda ended: warn(CUT_SHORT + ended))
        run = open_pipeline(settings, store, ledger, warn=warn)
        pipeline = run.pipeline
        client, corpus = _reach(settings, opened)
        if (census := run.census) is not None:
            # Workers count slots from the first record of each file.
            check(not census.spent, "spent", released=census.spent)
            on_opened()
            try:
                model = _fit_privately(client, corpus, run, census.slots, store, on_progress)
            except BaseException:
                if message := run.spending:
                    warn(message)
                raise
        else:
            words = pipeline.words
            assert not isinstance(words, PrivateVocabularySelection)
            found = learn_once(
                *(client, corpus),
                engine_settings(settings, most_words(settings.vocabulary)),
                words,
                state_folder=settings.checkpoint.folder,
                on_progress=on_progress,
                on_plan=on_plan,
                should_stop=should_stop,
            )
            assert found.model.vocabulary is not None
            pipeline.counts = found.counts
            pipeline.vocabulary_documents = found.model.settings.get("vocabulary_documents", 0)
            pipeline.take(found.model.vocabulary, found.engine)
            model = replace(found.model, settings={**found.model.settings, **pipeline.facts()})
            store.publish(model)
    end: dict[str, Any] = {"stopped": STOPPED in model.diagnostics}
    end |= {"stored_bytes": corpus.stored_bytes, "seconds": time.monotonic() - start}
    return FitResult(model=model, pipeline=pipeline, **end)


def _reach(settings: RunSettings, stack: ExitStack) -> tuple[Any, Corpus]:
    """Return a client of the cluster, and the files, cut for its workers."""
    address, files = settings.cluster.dask, settings.source.files
    assert address is not None
    client = stack.enter_context(connect(address))
    return client, of_files(files, file_options(settings), shards=settings.cluster.shards)


def _fit_privately(
    client: Any, corpus: Corpus, run: OpenedRun, n_slots: int, store: Store, on_progress: Progress
) -> TopicModel:
    """Make all releases that the files suffice for; they are read here for the ledger."""
    pipeline, newest, missed = run.pipeline, None, ""
    learner, words = pipeline.learner, pipeline.vocabulary
    assert learner is not None
    with closing(run.open_source()) as source:
        for slots in sum_stages(client, corpus, learner, words, slots=n_slots):
            pipeline.counts.records += slots
            skip_records(source, slots, pipeline, released=False)
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


class InferredFiles:
    """A source of files whose topic proportions are inferred on a cluster, shard by shard in order.

    Texts stay on the workers: a record that has one has an empty text here.
    """

    def __init__(self, settings: RunSettings, model: NamedModel, top: int | None) -> None:
        self.found = Rows([], [], [])
        with ExitStack() as opened:
            client, corpus = _reach(settings, opened)
            self._polls = _infer_shards(Run(client), corpus, model, top)
            self._stored = corpus.stored_bytes
            self.close = opened.pop_all().close

    def poll(self, most: int, timeout: float) -> RecordBatch:
        """Return the next records."""
        batch, self.found = next(self._polls, (RecordBatch(exhausted=True), self.found))
        return batch

    def progress(self) -> SourceProgress:
        """Return the stored bytes of all files; those read are not counted."""
        return SourceProgress(0, self._stored, "B")


def _infer_shards(
    run: Run, corpus: Corpus, model: NamedModel, top: int | None
) -> Iterator[tuple[RecordBatch, Rows]]:
    """Yield records without texts and their rows, numbered in files in place of their parts."""
    readings = [reading for shard in corpus.shards for reading in shard.readings]
    files = {name_part(r.names[0], r.part): r.names[0] for r in readings if r.part}
    #: Records of the parts of each file that were read.
    before = dict[str, int]()

    def number(at: Any) -> Any:
        file = files.get(at.location)
        return at._replace(location=file, record=before.get(file, 0) + at.record) if file else at

    sent = run.start([run.send(model)])
    for shard in run.start([run.task("infer", _infer, *sent, s, top) for s in corpus.shards]):
        (polls,) = run.compute([run.task("answer", list, shard)])
        run.release([shard])
        ends = dict[str, int]()
        for batch, found in polls:
            for places in (batch.rejects, batch.locations):
                places[:] = map(number, places)
            ends |= {at.location: at.record for at in batch.locations}
            yield batch, found
        # Parts of one file follow each other.
        before |= ends


def _infer(model: NamedModel, shard: Shard, top: int | None) -> list[tuple[RecordBatch, Rows]]:
    """Return the records of a shard without texts, and their proportions. A task; pure."""
    found: list[tuple[RecordBatch, Rows]] = []
    with task_of(shard):
        for rows in rows_of(shard, None):
            assert isinstance(rows, RecordBatch)
            texts = [None if text is None else "" for text in rows.texts]
            found.append(
                (replace(rows, texts=texts, exhausted=False), infer(model, rows.documents, top))
            )
    return found
