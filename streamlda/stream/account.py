"""Account of a stream: records in the state against records that its source has passed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from streamlda.checks import failure
from streamlda.errors import AccountError
from streamlda.stream.source import WHOLE, RecordBatch

#: Most parts that an error names.
MOST_NAMED = 3


class Account:
    """Records taken of each part of a stream, against the records passed (`Behind.passed`)."""

    def __init__(self, stored: Mapping[str, Any] | None = None) -> None:
        stored = stored or {}
        self._begins: dict[str, int] = dict(stored.get("begins", {}))
        self._taken: Counter[str] = Counter(stored.get("taken", {}))
        # False after records of a source that counts none: no account is held of them.
        self._known = bool(stored.get("known", True))

    def to_json(self) -> dict[str, Any]:
        """Return the account as plain JSON values."""
        return {"begins": self._begins, "taken": dict(self._taken), "known": self._known}

    def begin(self, passed: Mapping[str, int]) -> None:
        """Begin parts that are new, at the position of the source."""
        self._begins = {**passed, **self._begins}

    def add(self, batch: RecordBatch) -> None:
        """Take the records of a batch."""
        passed = None if batch.behind is None else batch.behind.passed
        if not passed:
            self._known = self._known and not batch.n_records
            return
        if WHOLE in passed:
            # The records of one part have many locations, such as files.
            counts = {WHOLE: batch.n_records}
        else:
            counts = Counter(at.location for at in batch.locations)
        for part in passed.keys() - self._begins.keys():
            self._begins[part] = passed[part] - counts.get(part, 0)
        self._taken.update(counts)

    def count_records(self, passed: Mapping[str, int]) -> dict[str, int] | None:
        """Return records in the state, and records passed; None where the source counts none."""
        if not (self._known and self._begins and passed):
            return None
        # A part that the source has no more is where it was left.
        behind = sum(passed.get(part, n + self._taken[part]) for part, n in self._begins.items())
        return {"records": self._taken.total(), "passed": behind - sum(self._begins.values())}

    def check(self, passed: Mapping[str, int], records: int) -> None:
        """Raise `AccountError` unless a state of so many records has each passed record once."""
        if (shown := self.count_records(passed)) is None:
            return
        differing = {
            part: found
            for part, begin in self._begins.items()
            if part in passed and (found := begin + self._taken[part] - passed[part])
        }
        if not differing and shown["records"] == records:
            return
        named = dict(list(differing.items())[:MOST_NAMED])
        raise failure(
            "each record that the source passed must be in the state once",
            **shown,
            in_state=records,
            too_many=named,
            remedy="this is a fault of the program: report it with the lines of the log before it; "
            "a daemon resumes from its last checkpoint by itself",
            error=AccountError,
        )
