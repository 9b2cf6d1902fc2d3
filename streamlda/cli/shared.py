"""Reading, messages, progress and signals that commands share."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from streamlda.checks import require
from streamlda.errors import InvalidDocumentsError
from streamlda.utils.process import resident_bytes

if TYPE_CHECKING:
    from streamlda.model.topic_model import TopicModel
    from streamlda.settings.run_settings import RunSettings
    from streamlda.stream.counts import RecordCounts
    from streamlda.stream.source import RecordLocation, Source


#: Flags, and settings, of a command that reads documents once and learns nothing.
TASKS = {"Documents": ("source.format", "source.encoding", "source.text_field")}
DOCUMENTS = (
    *("source.files", "source.format", "source.encoding", "source.text_field"),
    *(
        "source.include",
        "source.records_field",
        "source.delimiter",
        "source.max_record",
    ),
    *("source.max_documents", "vocabulary.analyzer"),
)

#: Most records of a poll, and the longest wait for a document of a slow pipe, in seconds.
POLL_RECORDS, POLL_SECONDS = 4096, 0.5

STOPPING = b"\nstopping: finishes and saves what was read; a second signal ends at once\n"


class StopSignals(AbstractContextManager["StopSignals"]):
    """Handler of SIGINT and SIGTERM: the first asks for a good end, the second ends the process.

    A signal that the process was started to ignore stays ignored. The first one is answered by a
    line on standard error, unless `quiet`; `received` is its number, 0 before.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.received, self._quiet = 0, quiet
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _receive(self, number: int, frame: object) -> None:
        for each in self._before:
            signal.signal(each, signal.SIG_DFL)
        self.received = number
        if not self._quiet:
            # The main thread may be in the middle of a line.
            os.write(2, STOPPING)


class Progress(AbstractContextManager["Progress"]):
    """A line on standard error: documents, documents/s, memory, and time left where known.

    With `slots` it counts record slots, never documents; `quiet` shows nothing, nor does a standard
    error that is no terminal.
    """

    def __init__(self, quiet: bool = False, *, slots: bool = False) -> None:
        self._shown, self._slots = not quiet and sys.stderr.isatty(), slots
        self._start = monotonic()
        self._bar: Any = None
        self._label = ""

    def show(self, source: Source, counts: RecordCounts) -> None:
        """Show how far a source and its counts have come, several times a second at most."""
        if self._shown:
            seconds = max(monotonic() - self._start, 1e-9)
            speed = f", {self._count(counts, seconds)}/s, {resident_bytes() / 1e6:,.0f} MB"
            found = source.progress()
            self._update("", self._count(counts) + speed, found.done, found.total)

    def show_round(self, label: str, counts: RecordCounts, done: int, total: int) -> None:
        """Show the round of a fit on a cluster, and how many of its parts are done, if known."""
        if self._shown:
            parts = f", {done:,} of {total:,} parts" if total else ""
            self._update(label, f"{label}: {self._count(counts)}{parts}", done, total)

    def _update(self, label: str, text: str, done: int, total: int | None) -> None:
        from tqdm import tqdm

        if self._bar is None or label != self._label:
            self.__exit__()
            line = "{percentage:3.0f}%|{bar:20}| {desc} [{elapsed}<{remaining}]"
            line = line if total else "{desc} [{elapsed}]"
            self._bar = tqdm(total=total or None, bar_format=line, leave=False, mininterval=0.2)
            self._label = label
        # A bar that does not move is drawn by its text alone.
        self._bar.set_description_str(text, refresh=not total and bool(label))
        self._bar.update(done - self._bar.n)

    def _count(self, counts: RecordCounts, seconds: float = 1) -> str:
        n, of = counts.documents, "documents"
        if self._slots:
            n, of = counts.records, "record slots"
        return f"{n / seconds:,.0f} {of}"

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


def warn_about_rejects(counts: Counter[str], fields: Sequence[str] = ()) -> None:
    """Print how many records were not usable, and why; `fields` are those of one without text."""
    if counts:
        from streamlda.model.table import plural
        from streamlda.stream.counts import fields_found

        skipped = f"{plural(counts.total(), 'record')} skipped"
        warn(f"{skipped}: {format_reasons(counts)}{fields_found(fields)}")


def warn_about_reading(counts: RecordCounts) -> None:
    """Print how the source was read, where that is not what its names say."""
    for note in counts.notes:
        warn(note)


class Documents(NamedTuple):
    """The documents of a poll, with their locations and event times (None: unknown).

    Those that cannot be used after all are to be added to `rejects`, by reason.
    """

    texts: list[str]
    locations: list[RecordLocation]
    times: list[float | None]
    rejects: Counter[str]
    #: Locations of all records of the poll, and why those without a document have none.
    records: Sequence[RecordLocation]
    reasons: list[str | None]
    #: Classes of the documents, with `source.class_field`.
    classes: list[str | None]


def allow_analyzer(settings: RunSettings) -> None:
    """Let a model call the analyzer that the user names."""
    from streamlda.text.functions import allow

    if settings.vocabulary.analyzer is not None:
        allow(settings.vocabulary.analyzer)


def read_documents(
    settings: RunSettings, source: Any = None, *, blanks: bool = False
) -> Iterator[Documents]:
    """Yield documents poll by poll; at the end, warn of what was skipped or has no id.

    They come from the source of the settings, or from the one given. With `blanks`, polls without
    a document are yielded too.

    `InvalidDocumentsError` where there are records and none is a document.
    """
    from streamlda.run.parts import open_stream
    from streamlda.run.proportions import BLANK
    from streamlda.stream.counts import RecordCounts, fields_found
    from streamlda.text.encoding import UNREADABLE

    allow_analyzer(settings)
    most, fields = settings.source.max_documents, settings.source
    n_documents = n_records = unnamed = unclassed = 0
    ended = False
    counts = RecordCounts()
    with closing(source or open_stream(settings)) as source:
        while not ended and n_documents != most:
            left = POLL_RECORDS if most is None else most - n_documents
            batch = source.poll(min(left, POLL_RECORDS), POLL_SECONDS)
            counts.add_batch(batch)
            times = batch.times or [None] * len(batch.texts)
            places = batch.get_locations(n_records + 1)
            named = batch.users or [None] * len(batch.texts)
            records = zip(batch.texts, places, times, named, strict=True)
            documents = [record for record in records if record[0] is not None]
            if documents or (blanks and places):
                columns = zip(*documents, strict=True) if documents else ((),) * 4
                texts, locations, dates, classes = map(list, columns)
                unnamed += sum(at.id is None for at in locations)
                unclassed += classes.count(None)
                why = {reject[:2]: reject.reason for reject in batch.rejects}
                reasons = [
                    None if text is not None else why.get(at[:2], BLANK)
                    for text, at in zip(batch.texts, places, strict=True)
                ]
                found = texts, locations, dates, counts.rejects, places, reasons, classes
                yield Documents(*found)
            n_documents += len(documents)
            n_records += batch.n_records
            ended = batch.exhausted
    warn_about_reading(counts)
    # Without the reasons that no record had.
    rejects = +counts.rejects
    require(
        n_documents > rejects[UNREADABLE] or not rejects,
        "a source must have a document that can be read",
        rejects=format_reasons(rejects) + fields_found(counts.fields),
        remedy="check the format, the text field and the analyzer",
        error=InvalidDocumentsError,
    )
    warn_about_rejects(rejects, counts.fields)
    for field, missing, kind in (
        (fields.id_field, unnamed, "id"),
        (fields.class_field, unclassed, "class"),
    ):
        if field is not None and missing:
            warn(f"{missing:,} of {n_documents:,} documents have no {field}, their {kind}")
