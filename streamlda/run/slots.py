"""Record slots of a private run that reads to an end: counted before anything is paid for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from streamlda.checks import require
from streamlda.errors import InsufficientDataError
from streamlda.run.opening import PrivateTerms
from streamlda.run.parts import SKIPPED_RECORDS, open_stream
from streamlda.settings.rules import source_of
from streamlda.settings.table import RunSettings

#: What a run says where it must pay before it knows that its slots suffice.
UNCOUNTED = (
    "record slots are counted before anything is paid for where files are read once and no clock "
    "ends a window, but not here: if the source ends before a window is full, what was spent gives "
    "no model"
)


def checked_slots(
    settings: RunSettings,
    used: int,
    warn: Callable[[str], None],
    should_stop: Callable[[], bool],
) -> int | None:
    """Return the record slots of a private run; refuse to begin with too few for a snapshot.

    None where they are known only when they were read, or without privacy. `used` slots are behind
    a run that goes on. Reads the files once, in some 3 microseconds a record. Raises
    `InsufficientDataError`, and `SourceError` if they cannot be read.
    """
    if not settings.private:
        return None
    if source_of(settings) != "files" or settings.snapshots.seconds is not None:
        warn(UNCOUNTED)
        return None
    terms = PrivateTerms.of(settings)
    slots = _count(settings, should_stop)
    if slots is None or used:
        return slots
    window, words = terms.settings.documents_per_snapshot, 0
    least, values = terms.settings.least_slots, {"documents_per_snapshot": window}
    if terms.choice is not None:
        # How many words there will be decides how a window is cut: a whole one always suffices.
        words, least = settings.vocabulary.documents, window
        values["vocabulary_documents"] = words
    require(
        slots >= words + least,
        "a private snapshot needs a whole window of record slots, behind those of the vocabulary",
        slots=slots,
        **values,
        remedy=f"set snapshots.every (--snapshot-every) to at most {max(0, slots - words)}, take "
        "fewer records for the vocabulary, or read more; nothing was spent",
        error=InsufficientDataError,
    )
    return slots


def _count(settings: RunSettings, should_stop: Callable[[], bool]) -> int | None:
    """Return how many records the run will read; None if it was stopped meanwhile."""
    most, slots = settings.source.max_documents, 0
    with closing(open_stream(settings)) as source:
        while not should_stop():
            batch = source.poll(SKIPPED_RECORDS)
            slots += batch.n_records
            if batch.exhausted or (most is not None and slots >= most):
                return slots if most is None else min(slots, most)
    return None
