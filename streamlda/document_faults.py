"""What is said of documents that cannot be taken: the rule, the first to break it, what to do."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import failure
from streamlda.errors import InvalidDocumentsError
from streamlda.kernels import checking

FROM_MATRIX = "build the batch with DocumentBatch.from_matrix"


def refuse(
    faults: NDArray[np.int32],
    counts: NDArray[Any],
    word_ids: NDArray[np.int32],
    row_pointers: NDArray[np.int64],
    n_features: int,
    most_tokens: int,
) -> NoReturn:
    """Raise for the least of the faults of documents, and name the first one that has it."""
    rules: dict[int, tuple[str, str]] = {
        checking.OUTSIDE: ("word ids must lie in 0..n_features-1", "encode by the vocabulary"),
        checking.FALLING: ("word ids must rise strictly within a document", FROM_MATRIX),
        checking.LONG: (f"a document must have at most {most_tokens} tokens", "split it"),
        checking.NOT_FINITE: ("counts must be finite", "remove NaN and infinity"),
        checking.NEGATIVE: (
            "Negative values in data passed to streamlda: counts must be >= 0",
            "pass word counts, not centred or signed features",
        ),
        checking.ZERO: ("a batch must store counts above 0 only", FROM_MATRIX),
        checking.FRACTIONAL: (
            "counts must be whole numbers of tokens",
            "pass CountVectorizer output, not TF-IDF",
        ),
    }
    found = int(np.bitwise_or.reduce(faults))
    fault = found & -found
    document = int(np.argmax(faults & fault != 0))
    first, last = row_pointers[document : document + 2].tolist()
    counts = counts[first:last].astype(np.float64)
    wrong = {
        checking.NOT_FINITE: ~np.isfinite(counts),
        checking.NEGATIVE: counts < 0,
        checking.ZERO: counts == 0,
        checking.FRACTIONAL: counts != np.rint(counts),
    }
    values: dict[str, Any] = {"document": document}
    if fault in wrong:
        values["count"] = counts[wrong[fault]][0]
    if fault == checking.OUTSIDE:
        values = {"min": word_ids.min(), "max": word_ids.max(), "n_features": n_features}
    rule, remedy = rules[fault]
    raise failure(rule, **values, remedy=remedy, error=InvalidDocumentsError)
