"""A scratch folder for ledgers, as in `tests.privacy`."""

from tests.privacy.ledger_cases import folder

__all__ = ["folder"]
