"""What ``streamlda fit --dask ADDRESS`` does instead of reading the documents here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from streamlda.cli.private_fit import PrivateRun, stream_name
from streamlda.cli.sources import warn

if TYPE_CHECKING:
    from streamlda.engine.settings import EngineSettings
    from streamlda.model.topic_model import TopicModel
    from streamlda.scaleout import Reading
    from streamlda.stream.ingest import Counts, Ingested
    from streamlda.stream.vocabulary_choice import VocabularyLearner
    from streamlda.text.vocabulary import Vocabulary


#: What only a private run in one process can do, and why.
_NOT_PRIVATELY = {
    "user_field": "documents of a user must be counted in one place",
    "snapshot_seconds": "workers have no common clock",
    "keep_snapshots": "the last snapshot alone is made here; all releases are beside the ledger",
    "private_vocabulary": "words are chosen where the documents are: use --vocabulary or "
    "--hash-bits",
}


def check_dask_usage(
    sources: tuple[str, ...],
    options: Mapping[str, Any],
    *,
    max_documents: int | None,
    rejects: str | None,
) -> None:
    """Raise a usage error for what has no meaning on a cluster, before anything is read."""
    if "-" in sources:
        raise click.UsageError("standard input (-) cannot be read by workers; name files")
    for option, given in {"--max-documents": max_documents, "--rejects": rejects}.items():
        if given is not None:
            raise click.UsageError(f"--dask and {option} exclude each other")
    for name, why in _NOT_PRIVATELY.items():
        if options.get(name):
            option = "--" + name.replace("_", "-")
            raise click.UsageError(f"--dask and {option} exclude each other: {why}")
    if options.get("mode") == "prefix":
        raise click.UsageError("--dask must have --mode window: sums of a prefix stay in one place")


def learn_on_dask(
    address: str,
    sources: tuple[str, ...],
    file_format: str,
    text_field: str,
    compression: str,
    words: Vocabulary | VocabularyLearner,
    settings: EngineSettings,
    quiet: bool,
) -> tuple[TopicModel, Ingested]:
    """Learn topics on a cluster; nothing is returned, or written, if it fails on the way.

    Refined as in one process, if the settings do not exclude it; else from sums, of three rounds.

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
    from streamlda.scaleout import connect, learn, learn_once, of_files
    from streamlda.stream.ingest import Ingested

    corpus = of_files(sources, _reading(file_format, text_field, compression))
    progress = _Line(quiet)
    try:
        with connect(address) as client:
            fit = learn_once if settings.refines else learn
            found = fit(client, corpus, settings, words, on_progress=progress.show)
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


class DaskRun(PrivateRun):
    """A private run whose documents are read and summed by workers; paid for here.

    Terms, prices, the name of the stream and the places of the records are those of the same run
    in this process, so that the ledger knows these documents again wherever they are read.
    """

    __slots__ = ()

    def learn_on(self, address: str, file_format: str, text_field: str, compression: str) -> None:
        """Learn on a cluster, and write the model of the last snapshot.

        Parameters
        ----------
        address : str
            Of the scheduler.
        file_format, text_field, compression
            As `learn_on_dask` takes them.

        Raises
        ------
        BudgetExceededError, LedgerError
            Before a document is read if the ledger does not allow the first window.
        MissingExtraError, ClusterError, SourceError, InsufficientDataError, InvalidSettingError
            As `streamlda.scaleout.fit_privately`. What was released before is paid for.
        """
        from streamlda.private.budget import check_first_price
        from streamlda.private.release_manager import ReleaseManager
        from streamlda.scaleout import connect, fit_privately, of_files

        assert self.words is not None
        begun = perf_counter()
        settings, _ = self._settings()
        with ExitStack() as opened:
            ledger = self._open_ledger(opened, settings, None)
            stream = self.options["stream"] or stream_name(self.sources)
            check_first_price(ledger, stream, settings, 0, None)
            corpus = of_files(self.sources, _reading(file_format, text_field, compression))
            client = opened.enter_context(connect(address))
            releaser = ReleaseManager(ledger=ledger, stream=stream)
            model = fit_privately(client, corpus, settings, releaser, self.words)
            model.save(self.output)
        for message in model.diagnostics.get("warnings", []):
            warn(message)
        if not self.quiet:
            self._tell(model, perf_counter() - begun)

    def _tell(self, model: TopicModel, seconds: float) -> None:
        about = model.privacy
        say = [
            f"{model.n_components} topics over {model.n_features:,} words ({about['vocabulary']})",
            f"last snapshot, of the places {about['cohort']['first']:,} to "
            f"{about['cohort']['last'] + 1:,}; {seconds:.1f} s",
            f"private: epsilon {about['epsilon']:g}, delta {about['delta']:g} for each "
            f"{about['privacy_unit']} ({about['neighboring_relation']}); "
            f"spent: streamlda budget {self.options['ledger']}",
            "numbers of documents, rejects and tokens are private and not shown",
            f"model: {self.output}",
        ]
        click.echo("\n".join(say), err=True)


def _reading(file_format: str, text_field: str, compression: str) -> Reading:
    from streamlda.scaleout import Reading

    stored = None if compression == "none" else compression
    return Reading(format=file_format, text_field=text_field, compression=stored)


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
