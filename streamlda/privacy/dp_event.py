"""Events in the words of Google's dp-accounting, for a second opinion by another accountant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamlda.errors import MissingExtraError
from streamlda.privacy.accounting import cost
from streamlda.privacy.events import (
    Approximate,
    Composed,
    Event,
    GaussianRelease,
    LaplaceRelease,
    Parallel,
    unknown,
)

if TYPE_CHECKING:
    import dp_accounting


def to_dp_event(event: Event) -> dp_accounting.DpEvent:
    """Return the event as a ``DpEvent`` of Google's dp-accounting.

    That library knows no parallel composition. Of cohorts the most expensive is exported; if none
    is that in both mu^2 and pure epsilon, all are, as if they were of the same documents: a
    valid, looser bound. Nor does it know `Approximate`: of that its event is exported, and what
    it takes of delta beside (`streamlda.privacy.ledger.LedgerTerms.price`) is to be taken off.
    """
    try:
        import dp_accounting
    except ImportError as error:
        purpose = "exporting privacy events"
        raise MissingExtraError("dp-accounting", "accounting", purpose) from error
    match event:
        case GaussianRelease(noise_multiplier):
            return dp_accounting.GaussianDpEvent(noise_multiplier)
        case LaplaceRelease(epsilon):
            return dp_accounting.LaplaceDpEvent(1 / epsilon)
        case Approximate(noisy):
            return to_dp_event(noisy)
        case Composed(events):
            return dp_accounting.ComposedDpEvent([to_dp_event(inner) for inner in events])
        case Parallel(events):
            whole = cost(event)
            for inner in events:
                if cost(inner)[:3] == whole[:3]:
                    return to_dp_event(inner)
            return dp_accounting.ComposedDpEvent([to_dp_event(inner) for inner in events])
    raise unknown(event)
