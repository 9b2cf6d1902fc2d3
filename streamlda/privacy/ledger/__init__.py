"""Privacy ledger: spending is on the disk before noise is drawn."""

from streamlda.privacy.ledger.budget_table import budget_table
from streamlda.privacy.ledger.fingerprints import FingerprintKey
from streamlda.privacy.ledger.ledger import Evidence, Ledger, LedgerReader, read_report
from streamlda.privacy.ledger.records import Cohort, Container, DocumentRange, Provenance
from streamlda.privacy.ledger.state import Release
from streamlda.privacy.ledger.terms import LedgerTerms

__all__ = [
    "Cohort",
    "Container",
    "DocumentRange",
    "Evidence",
    "FingerprintKey",
    "Ledger",
    "LedgerReader",
    "LedgerTerms",
    "Provenance",
    "Release",
    "budget_table",
    "read_report",
]
