"""Events in the words of Google's dp-accounting, for a second opinion by another accountant."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streamlda.errors import MissingExtraError
from streamlda.guarantee.mechanism import ZERO_OUT, check_relation
from streamlda.privacy import events

if TYPE_CHECKING:
    import dp_accounting


class DpExport(NamedTuple):
    """An event, and the relation of which it tells: both are arguments of an accountant."""

    event: dp_accounting.DpEvent
    neighboring_relation: dp_accounting.NeighboringRelation


def to_dp_event(event: events.Event, neighboring_relation: str) -> DpExport:
    """Return the event as a ``DpEvent`` of Google's dp-accounting, with its relation.

    ``zero-out`` is ``REPLACE_SPECIAL`` there: ``ADD_OR_REMOVE_ONE`` hides the number of records.

    That library does not know `Approximate`: the event inside is exported, and what it takes of
    delta beside (`streamlda.privacy.ledger.LedgerTerms.price`) is to be taken off.
    """
    try:
        import dp_accounting
    except ImportError as error:
        purpose = "exporting privacy events"
        raise MissingExtraError("dp-accounting", "accounting", purpose) from error
    relations = dp_accounting.NeighboringRelation
    hides = check_relation(neighboring_relation) == ZERO_OUT
    return DpExport(_export(event), relations.REPLACE_SPECIAL if hides else relations.REPLACE_ONE)


def _export(event: events.Event) -> dp_accounting.DpEvent:
    import dp_accounting

    match event:
        case events.GaussianRelease(noise_multiplier):
            return dp_accounting.GaussianDpEvent(noise_multiplier)
        case events.LaplaceRelease(epsilon):
            return dp_accounting.LaplaceDpEvent(1 / epsilon)
        case events.Approximate(noisy):
            return _export(noisy)
        case events.Composed(members):
            return dp_accounting.ComposedDpEvent([_export(inner) for inner in members])
    raise events.unknown(event)
