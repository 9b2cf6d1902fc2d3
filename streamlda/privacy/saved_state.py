"""The rule for all that goes on from a saved state."""

from __future__ import annotations

from typing import Any

from streamlda.checks import require


def require_state(holds: object, **found: Any) -> None:
    """Refuse arrays that `state` did not return: others, or of another shape, type or range."""
    require(
        holds,
        "a saved state must hold what state() returned, whole and within its ranges",
        **found,
        remedy="restore the checkpoint whole, with the settings it was made with",
    )
