"""Detect a ledger that was restored from an older copy, by evidence kept away from it.

A ledger and its documents can be put back together, or be lost together. What was published by it
carries its name and its generation, and lies elsewhere: models in files, folders and topics, and
the notes beside the offsets that a consumer group shows. No more than these can tell: a copy of the
whole machine, with all of them, is as it was.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_ID = re.compile(r"[0-9a-f]{32}")


class Evidence(NamedTuple):
    """Something that was made when a ledger had begun `generation` releases, and where it is."""

    where: str
    ledger_id: str
    generation: int

    @classmethod
    def of(cls, statement: Mapping[str, Any], where: str) -> Evidence | None:
        """Return what a privacy statement shows; None if it names no ledger.

        Statements of 0.1.0 have no generation: they show the ledger alone.
        """
        ledger_id, generation = statement.get("ledger"), statement.get("generation", 0)
        if not (isinstance(ledger_id, str) and _ID.fullmatch(ledger_id)):
            return None
        return cls(where, ledger_id, generation if type(generation) is int else 0)

    @property
    def note(self) -> str:
        """Ledger and generation as text; `of_note` reads it."""
        return f"streamlda {self.ledger_id} {self.generation}"

    @classmethod
    def of_note(cls, note: str, where: str) -> Evidence | None:
        """Return what a note shows; None if it is none of ours."""
        found = re.fullmatch(rf"streamlda ({_ID.pattern}) ([0-9]{{1,18}})", note)
        return found and cls(where, found[1], int(found[2]))
