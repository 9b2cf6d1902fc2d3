"""Documents of commands that read them once and learn nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from streamlda.checks import require
from streamlda.cli.running import format_reasons, warn, warn_about_damage, warn_about_rejects
from streamlda.errors import InvalidDocumentsError

if TYPE_CHECKING:
    from streamlda.settings.run_settings import RunSettings
    from streamlda.stream.source import RecordLocation

#: Flags of such a command.
TASKS = {"Documents": ("source.format", "source.text_field")}

#: Settings of such a command.
DOCUMENTS = (
    *("source.files", "source.format", "source.text_field", "source.compression"),
    *("source.delimiter", "source.max_record", "source.max_documents", "vocabulary.analyzer"),
)

#: Most records of a poll, and the longest wait for a document of a slow pipe, in seconds.
POLL_RECORDS, POLL_SECONDS = 4096, 0.5


class Documents(NamedTuple):
    """The documents of a poll, with their locations and event times (None: unknown).

    Those that cannot be used after all are to be added to `rejects`, by reason.
    """

    texts: list[str]
    locations: list[RecordLocation]
    times: list[float | None]
    rejects: Counter[str]


def allow_analyzer(settings: RunSettings) -> None:
    """Let a model call the analyzer that the user names."""
    from streamlda.text.functions import allow

    if settings.vocabulary.analyzer is not None:
        allow(settings.vocabulary.analyzer)


def read_documents(settings: RunSettings) -> Iterator[Documents]:
    """Yield documents poll by poll; at the end, warn of what was skipped or has no id.

    `InvalidDocumentsError` where there are records and none is a document.
    """
    from streamlda.run.parts import open_stream
    from streamlda.stream.counts import RecordCounts, fields_found
    from streamlda.text.encoding import UNREADABLE

    allow_analyzer(settings)
    most, id_field = settings.source.max_documents, settings.source.id_field
    n_documents = n_records = unnamed = 0
    ended = False
    counts = RecordCounts()
    with closing(open_stream(settings)) as source:
        while not ended and n_documents != most:
            left = POLL_RECORDS if most is None else most - n_documents
            batch = source.poll(min(left, POLL_RECORDS), POLL_SECONDS)
            counts.rejects.update(reject.reason for reject in batch.rejects)
            counts.fields = counts.fields or batch.fields
            counts.add_damage(batch.damage)
            times = batch.times or [None] * len(batch.texts)
            records = zip(batch.texts, batch.located(n_records + 1), times, strict=True)
            documents = [record for record in records if record[0] is not None]
            if documents:
                texts, locations, dates = map(list, zip(*documents, strict=True))
                unnamed += sum(at.id is None for at in locations)
                yield Documents(texts, locations, dates, counts.rejects)
            n_documents += len(documents)
            n_records += batch.n_records
            ended = batch.exhausted
    warn_about_damage(counts)
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
    if id_field is not None and unnamed:
        warn(f"{unnamed:,} of {n_documents:,} documents have no {id_field}, their id")
