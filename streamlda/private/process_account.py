"""Account of the private fits of this process that have no ledger: rows that come again.

Without a ledger the guarantee of a fit holds for that fit alone. Where another fit of the process
takes the same rows, as a search over parameters does, what both release adds up. The account knows
rows by keyed values (`streamlda.privacy.ledger.fingerprints`), 8 bytes each, under a key of the
process. Other processes, workers of a parallel search too, have accounts of their own.
"""

import secrets

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.privacy.ledger.documents import WARNED_OF, Values, values_of_fingerprints
from streamlda.privacy.ledger.fingerprints import FingerprintKey
from streamlda.privacy.ledger.terms import NOTHING, Loss


class ProcessAccount:
    """Rows of fits, and the most that each fit may spend on one of them."""

    def __init__(self) -> None:
        self._key = FingerprintKey(secrets.token_bytes(32))
        self._calls: list[tuple[str, Values, Loss]] = []

    def charge(self, fit: str, batch: DocumentBatch, price: Loss) -> Loss:
        """Return the most that other fits may have spent on a row, and note the rows of a call.

        Nothing where fewer than a tenth of the rows were in other fits: those may be alike.
        """
        values = np.unique(values_of_fingerprints(self._key.of_rows(batch)))
        others = [(found, price) for name, found, price in self._calls if name != fit]
        known = [np.isin(values, found, assume_unique=True) for found, _ in others]
        spent = np.zeros(len(values))
        for inside, (_, each) in zip(known, others, strict=True):
            spent[inside] += float(each.mu_squared)
        before = NOTHING
        if len(values) and WARNED_OF * np.count_nonzero(spent) >= len(values):
            worst = spent.argmax()
            for inside, (_, each) in zip(known, others, strict=True):
                before = before.join(each) if inside[worst] else before
        self._calls.append((fit, values, price))
        return before


#: The account of this process.
ACCOUNT = ProcessAccount()
