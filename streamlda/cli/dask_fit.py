"""What ``streamlda fit --dask ADDRESS`` does instead of reading the documents here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from streamlda.engine_settings import EngineSettings
    from streamlda.ingest import Counts, Ingested
    from streamlda.model import TopicModel
    from streamlda.vocabulary import Vocabulary
    from streamlda.words import WordsToLearn


def check_dask_usage(
    sources: tuple[str, ...],
    *,
    private: bool,
    max_documents: int | None,
    rejects: str | None,
) -> None:
    """Raise a usage error for what has no meaning on a cluster, before anything is read."""
    if "-" in sources:
        raise click.UsageError("standard input (-) cannot be read by workers; name files")
    wrong = {
        "--epsilon": private,
        "--max-documents": max_documents is not None,
        "--rejects": rejects is not None,
    }
    for option, given in wrong.items():
        if given:
            raise click.UsageError(f"--dask and {option} exclude each other")


def learn_on_dask(
    address: str,
    sources: tuple[str, ...],
    file_format: str,
    text_field: str,
    compression: str,
    words: Vocabulary | WordsToLearn,
    settings: EngineSettings,
    quiet: bool,
) -> tuple[TopicModel, Ingested]:
    """Learn topics on a cluster; nothing is returned, or written, if it fails on the way.

    Parameters
    ----------
    address : str
        Of the scheduler.
    sources, file_format, text_field, compression
        As `streamlda.cli.sources.open_sources` takes them; every worker must find the files.
    words : Vocabulary or WordsToLearn
    settings : EngineSettings
        With `n_features` the most words there may be.
    quiet : bool
        Show no progress.

    Raises
    ------
    MissingExtraError, ClusterError, SourceError, InsufficientDataError, InvalidSettingError
        As `streamlda.scaleout.connect`, `of_files` and `learn`.
    """
    from streamlda.ingest import Ingested
    from streamlda.scaleout import Reading, connect, learn, of_files

    stored = None if compression == "none" else compression
    reading = Reading(format=file_format, text_field=text_field, compression=stored)
    corpus = of_files(sources, reading)
    progress = _Line(quiet)
    try:
        with connect(address) as client:
            found = learn(client, corpus, settings, words, on_progress=progress.show)
    finally:
        progress.close()
    assert found.vocabulary is not None
    ingested = Ingested(
        vocabulary=found.vocabulary,
        engine=found.engine,
        counts=found.counts,
        vocabulary_documents=found.vocabulary_documents,
        seconds=found.seconds,
        stopped=False,
    )
    return found.model(), ingested


class _Line:
    """A line on standard error: the round, and documents so far."""

    def __init__(self, quiet: bool) -> None:
        from tqdm import tqdm

        self._label = ""
        on_terminal = sys.stderr.isatty()
        self._bar: Any = tqdm(
            bar_format="{desc} [{elapsed}]",
            desc="reading",
            disable=quiet,
            leave=False,
            mininterval=0.2 if on_terminal else 10.0,
            delay=0.0 if on_terminal else 10.0,
        )

    def show(self, label: str, counts: Counts) -> None:
        if not self._bar.disable:
            text = f"{label}: {counts.documents:,} documents"
            # The beginning of a round is always shown, what comes then now and again.
            self._bar.set_description_str(text, refresh=label != self._label)
            self._bar.update()
            self._label = label

    def close(self) -> None:
        self._bar.close()
