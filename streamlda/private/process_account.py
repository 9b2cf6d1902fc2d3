"""Account of the private fits of this process that have no ledger: rows that come again.

Without a ledger the guarantee of a fit holds for that fit alone. Where another fit of the process
takes the same rows, as a search over parameters does, what both release adds up. The account knows
rows by keyed values (`streamlda.privacy.ledger.fingerprints`), 8 bytes each, under a key of the
process. Other processes, workers of a parallel search too, have accounts of their own.
"""

from __future__ import annotations

import secrets
from fractions import Fraction

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.privacy.ledger.documents import WARNED_OF, Values, values_of_fingerprints
from streamlda.privacy.ledger.fingerprints import FingerprintKey
from streamlda.privacy.ledger.terms import NOTHING, Loss


class ProcessAccount:
    """Rows of fits, and what each fit may spend on one of them."""

    def __init__(self) -> None:
        self._key = FingerprintKey(secrets.token_bytes(32))
        self._calls: list[tuple[str, Values, Loss]] = []

    def charge(self, fit: str, batch: DocumentBatch, price: Loss) -> Loss:
        """Return what other fits may have spent on a row, the most, and note the rows of a call.

        Nothing where fewer than a tenth of the rows were in other fits: those may be alike.
        """
        values = np.unique(values_of_fingerprints(self._key.of_rows(batch)))
        spent = np.zeros(len(values))
        inside = {
            other: np.isin(values, found, assume_unique=True)
            for other, (name, found, _) in enumerate(self._calls)
            if name != fit
        }
        for other, known in inside.items():
            spent[known] += float(self._calls[other][2].mu_squared)
        before = NOTHING
        if len(values) and WARNED_OF * np.count_nonzero(spent) >= len(values):
            worst = spent.argmax()
            losses = [self._calls[other][2] for other, known in inside.items() if known[worst]]
            mu_squared = sum((each.mu_squared for each in losses), Fraction(0))
            aside = sum((each.set_aside for each in losses), Fraction(0))
            before = Loss(mu_squared, aside / mu_squared)
        self._calls.append((fit, values, price))
        return before


#: The account of this process.
ACCOUNT = ProcessAccount()
