"""Ledger of privacy: what is spent is on the disk before noise is drawn."""

from streamlda.privacy.ledger.artifact import digest_file
from streamlda.privacy.ledger.budget_table import budget_table, figure, plain
from streamlda.privacy.ledger.file import OnStep
from streamlda.privacy.ledger.fingerprints import FingerprintKey, Fingerprints
from streamlda.privacy.ledger.known import KnownRecords
from streamlda.privacy.ledger.ledger import Ledger, LedgerReader, Recovery, read_report
from streamlda.privacy.ledger.provenance import Container, Provenance
from streamlda.privacy.ledger.state import Intent
from streamlda.privacy.ledger.terms import Cohort, DocumentRange, LedgerTerms

__all__ = [
    "Cohort",
    "Container",
    "DocumentRange",
    "FingerprintKey",
    "Fingerprints",
    "Intent",
    "KnownRecords",
    "Ledger",
    "LedgerReader",
    "LedgerTerms",
    "OnStep",
    "Provenance",
    "Recovery",
    "budget_table",
    "digest_file",
    "figure",
    "plain",
    "read_report",
]
