"""Fixtures of the ledger, for this folder."""

from tests.privacy.ledger_cases import crashes, folder, ledger

__all__ = ["crashes", "folder", "ledger"]
