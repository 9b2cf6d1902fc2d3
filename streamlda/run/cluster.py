"""A fit on a Dask cluster: workers read the files and sum; words, topics and noise are made here.

Counts and unrefined topics are those of `streamlda.run.fit.fit` to rounding, refined topics as
good, and private releases number for number the same: terms, prices, the name of the stream and the
record slots too, so that the ledger knows the documents again wherever they are read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from streamlda.model.topic_model import TopicModel
from streamlda.run.fit import FitResult
from streamlda.run.opening import CUT_SHORT, open_ledger, open_pipeline
from streamlda.run.parts import file_options
from streamlda.scaleout import (
    Corpus,
    Progress,
    connect,
    learn_once,
    no_progress,
    of_files,
    summed_stages,
)
from streamlda.settings.build import engine_settings, most_words
from streamlda.settings.table import RunSettings
from streamlda.storage.publishing import Publisher
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.vocabulary_choice import PrivateVocabularySelection


def fit_on_cluster(
    settings: RunSettings,
    *,
    on_progress: Progress = no_progress,
    warn: Callable[[str], None] = lambda message: None,
) -> FitResult:
    """Learn topics on the cluster that the settings name; private models are written as they come.

    Without privacy nothing is written if anything fails.

    Raises `BudgetExceededError` or `LedgerError` before any document is read, if the ledger does
    not allow the first window; others as `streamlda.scaleout.connect`, `of_files`, `learn_once` and
    `fit_privately`. What was released before is paid for.
    """
    start, address = time.monotonic(), settings.cluster.dask
    assert address is not None
    with ExitStack() as opened:
        output = settings.output
        publisher = opened.enter_context(
            Publisher(output.folder, output.file, private=settings.private)
        )
        ledger = open_ledger(
            settings, opened, lambda ended: warn(f"{CUT_SHORT}: {ended}"), publisher
        )
        pipeline = open_pipeline(settings, ledger=ledger).pipeline
        corpus = of_files(settings.source.files, file_options(settings))
        client = opened.enter_context(connect(address))
        if ledger is not None:
            model = _fit_privately(client, corpus, pipeline, publisher, on_progress)
        else:
            model = _fit(client, corpus, pipeline, settings, on_progress)
            publisher.store(model)
    return FitResult.of(model, pipeline, time.monotonic() - start)


def _fit(
    client: Any,
    corpus: Corpus,
    pipeline: Pipeline[Any],
    settings: RunSettings,
    on_progress: Progress,
) -> TopicModel:
    """Learn from all files, and bring the pipeline to their end."""
    engine, words = pipeline.learner, pipeline.words
    assert not isinstance(words, PrivateVocabularySelection)
    found = learn_once(
        client,
        corpus,
        engine_settings(settings, most_words(settings)) if engine is None else engine.settings,
        words,
        shared_projection=None if engine is None else engine.shared_projection,
        on_progress=on_progress,
    )
    assert found.vocabulary is not None
    values = {"vocabulary_documents": found.vocabulary_documents}
    pipeline.restore(found.vocabulary, found.engine, values)
    pipeline.counts = found.counts
    return found.model(pipeline.facts())


def _fit_privately(
    client: Any,
    corpus: Corpus,
    pipeline: Pipeline[Any],
    publisher: Publisher,
    on_progress: Progress,
) -> TopicModel:
    """Make all releases that the files suffice for; return the last model."""
    newest, missed = None, ""
    assert pipeline.learner is not None
    for met in summed_stages(client, corpus, pipeline.learner, pipeline.vocabulary):
        pipeline.counts.update(met)
        on_progress("reading", pipeline.counts)
        if pipeline.due == 0 or pipeline.ends_well:
            released = pipeline.release()
            missed = released.missed or missed
            if released.model is not None:
                newest = released.model
                publisher.store(newest)
    if newest is None:
        raise pipeline.insufficient(missed)
    return newest
