"""Reading, messages, progress and signals that commands share."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from streamlda.errors import InvalidDocumentsError, ModelFileError, failure, require
from streamlda.utils.process import resident_bytes

if TYPE_CHECKING:
    from streamlda.model.topic_model import TopicModel
    from streamlda.settings.table import RunSettings
    from streamlda.storage.snapshots import NamedModel
    from streamlda.stream.counts import RecordCounts
    from streamlda.stream.source import RecordLocation, Source


#: Flags, and settings, of a command that reads documents once and learns nothing.
TASKS = {"Documents": ("source.format", "source.encoding", "source.text_field")}
READ = ("files", "format", "encoding", "text_field", "include", "records_field", "delimiter")
DOCUMENTS = (*(f"source.{key}" for key in READ), "source.max_record", "vocabulary.analyzer")

#: Most records of a poll, and the longest wait for a document of a slow pipe, in seconds.
POLL_RECORDS, POLL_SECONDS = 4096, 0.5

STOPPING = (
    b"\nstopping: saves topics of what was read, if there is enough; a second signal ends at once\n"
)

#: Seconds between two lines of progress where there is no terminal.
LINE_SECONDS = 60


@contextmanager
def catch_signals(quiet: bool = False) -> Iterator[list[int]]:
    """Handle SIGINT and SIGTERM: the first asks for a good end, the second ends the process.

    A signal that the process was started to ignore stays ignored. The number of the first is in the
    list that is given, and a line on standard error answers it, unless `quiet`.
    """
    received: list[int] = []

    def receive(number: int, frame: object) -> None:
        for each in heard:
            signal.signal(each, signal.SIG_DFL)
        received.append(number)
        if not quiet:
            # The main thread may be in the middle of a line.
            os.write(2, STOPPING)

    heard = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, receive) for number in heard}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Progress(AbstractContextManager["Progress"]):
    """A line on standard error: documents, documents/s, memory, and time left where known.

    With `slots` it counts record slots, never documents; `quiet` shows nothing. A standard error
    that is no terminal gets a line a minute.
    """

    def __init__(self, quiet: bool = False, *, slots: bool = False) -> None:
        self._quiet, self._terminal, self._slots = quiet, sys.stderr.isatty(), slots
        self._start = self._told = monotonic()
        self._label = ""
        self._bar: Any = None

    def show(self, source: Source, counts: RecordCounts) -> None:
        """Show how far a source and its counts have come, several times a second at most."""
        self.show_round("", counts, *source.progress()[:2])

    def show_round(self, label: str, counts: RecordCounts, done: int, total: int | None) -> None:
        """Show the round of a fit on a cluster, and how many of its parts are done, if known."""
        if self._quiet or not (self._terminal or monotonic() - self._told >= LINE_SECONDS):
            return
        from tqdm import tqdm

        slots, documents = (counts.records, "record slots"), (counts.documents, "documents")
        n, of = slots if self._slots else documents
        speed = f"{n / max(monotonic() - self._start, 1e-9):,.0f} {of}/s"
        text = f"{n:,} {of}, {speed}, {resident_bytes() / 1e6:,.0f} MB"
        if label:
            text = f"{label}: {n:,} {of}" + (f", {done:,} of {total:,} parts" if total else "")
        if not self._terminal:
            self._told = monotonic()
            click.echo(text, err=True)
            return
        if self._bar is None or label != self._label:
            self.__exit__()
            line = "{percentage:3.0f}%|{bar:20}| {desc} [{elapsed}<{remaining}]"
            line = line if total else "{desc} [{elapsed}]"
            self._bar = tqdm(total=total or None, bar_format=line, leave=False, mininterval=0.2)
            self._label = label
        # A bar that does not move is drawn by its text alone.
        self._bar.set_description_str(text, refresh=not total and bool(label))
        self._bar.update(done - self._bar.n)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


def warn(message: str) -> None:
    """Print a warning on standard error."""
    click.echo(f"streamlda: warning: {message}", err=True)


def say(quiet: bool, *lines: str) -> None:
    """Print the summary of a command on standard error."""
    if not quiet:
        click.echo("\n".join(lines), err=True)


def show_warnings(model: TopicModel) -> None:
    """Print the warnings of a model."""
    for message in model.diagnostics.get("warnings", []):
        warn(message)


def format_reasons(counts: Mapping[str, int]) -> str:
    """Return counts as ``not-json 3, too-long 1``, the largest first."""
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{reason} {n:,}" for reason, n in ordered)


def warn_about(counts: RecordCounts) -> None:
    """Print how the source was read, and which records were of no use."""
    from streamlda.model.table import plural
    from streamlda.stream.counts import fields_found

    for note in counts.notes:
        warn(note)
    if rejects := +counts.rejects:
        skipped = f"{plural(rejects.total(), 'record')} skipped"
        warn(f"{skipped}: {format_reasons(rejects)}{fields_found(counts.fields)}")


def check_lost(
    counts: RecordCounts, stored_bytes: int | None, settings: RunSettings, where: str
) -> None:
    """Refuse a share of lost records or bytes above that of the settings; the output is there."""
    most, rejects = settings.source.most_lost, counts.rejects.total()
    of_bytes = counts.lost_bytes / (stored_bytes or max(1, counts.lost_bytes))
    lost = max(rejects / max(1, counts.records), of_bytes)
    require(
        lost <= most,
        f"more than {most:.4g} of the records were rejected, or of stored bytes lost",
        lost=round(lost, 4),
        records=counts.records,
        rejects=rejects,
        lost_bytes=counts.lost_bytes,
        remedy=f"{where}: repair the files, or raise source.most_lost",
        error=InvalidDocumentsError,
    )


def find_newest(path: str) -> NamedModel:
    """Return the model of a file, or the newest of a folder of snapshots."""
    from streamlda.storage.snapshots import NewestModel

    newest, rule = NewestModel(path).find(), "the folder has no snapshot"
    if newest is None:
        raise failure(rule, path=path, remedy="name a model file", error=ModelFileError)
    return newest


class Documents(NamedTuple):
    """The documents of a poll, and its records."""

    texts: list[str]
    times: list[float | None]
    #: With `source.class_field`.
    classes: list[str | None]
    records: Sequence[RecordLocation]
    #: Why records have no document; None of those that have one.
    reasons: list[str | None]
    #: Of all records so far; its rejects take documents of no use, by reason.
    counts: RecordCounts
    #: Of the source, where they are known.
    stored_bytes: int | None


def allow_analyzer(settings: RunSettings) -> None:
    """Let a model call the analyzer that the user names."""
    from streamlda.text.functions import allow

    if settings.vocabulary.analyzer is not None:
        allow(settings.vocabulary.analyzer)


def read_documents(settings: RunSettings, source: Any = None) -> Iterator[Documents]:
    """Yield polls of the source of the settings, or of the one given; warn at the end.

    `InvalidDocumentsError` where there are records and none is a document.
    """
    from streamlda.model.document_table import BLANK
    from streamlda.run.parts import open_stream
    from streamlda.stream.counts import RecordCounts, fields_found
    from streamlda.text.encoding import UNREADABLE

    allow_analyzer(settings)
    fields, lacking = settings.source, Counter[str]()
    counts, ended = RecordCounts(), False
    with closing(source or open_stream(settings)) as source:
        while not ended:
            batch = source.poll(POLL_RECORDS, POLL_SECONDS)
            places = batch.get_locations(counts.records + 1)
            found = batch.get_documents(counts.records + 1)
            named = zip(batch.users or [None] * batch.n_records, batch.texts, strict=True)
            classes = [own for own, text in named if text is not None]
            why = {reject[:2]: reject.reason for reject in batch.rejects}
            reasons = [
                None if text is not None else why.get(at[:2], BLANK)
                for text, at in zip(batch.texts, places, strict=True)
            ]
            counts.add_batch(batch)
            lacking["id"] += sum(at.id is None for _, at, _ in found)
            lacking["class"] += classes.count(None)
            texts, times = [text for text, _, _ in found], [time for _, _, time in found]
            progress = source.progress()
            stored = progress.total if progress.unit == "B" else None
            yield Documents(texts, times, classes, places, reasons, counts, stored)
            ended = batch.exhausted
    rejects, n = +counts.rejects, counts.documents
    warn_about(counts)
    require(
        n > rejects[UNREADABLE] or not rejects,
        "no document of the source can be read",
        rejects=format_reasons(rejects) + fields_found(counts.fields),
        remedy="check the format, the text field and the analyzer",
        error=InvalidDocumentsError,
    )
    for kind, field in (("id", fields.id_field), ("class", fields.class_field)):
        if field is not None and lacking[kind]:
            warn(f"{lacking[kind]:,} of {n:,} documents have no {field}, their {kind}")
