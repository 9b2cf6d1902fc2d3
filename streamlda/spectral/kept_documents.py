"""Topics of documents that are in memory, without their triple moment.

The triple moment of t columns is t^3 numbers, and t^3 / 3 multiplications a document: with K = 500
2 GB and a minute. Documents that are kept answer the power method instead, at O(nnz K) for all
vectors of one step (`streamlda.spectral.associations`).
"""

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.spectral.associations import DocumentAssociation
from streamlda.spectral.joint_power import joint_power, word_starts
from streamlda.spectral.moments import Moments, half_of
from streamlda.spectral.topics import SpectralTopics, topics_along
from streamlda.spectral.whitening import second_moment_within, whitening_root
from streamlda.utils.arrays import Array

#: Words that starts are chosen among, over their number: of all 8,000 words the choice is nearly
#: the same, and takes four times as long.
STARTS_AMONG = 4


def topics_of_documents(
    documents: DocumentBatch, moments: Moments, n_components: int, alpha_0: float
) -> SpectralTopics:
    """Return topics of documents that are kept, by a triple moment that is never formed.

    `moments` are their sums, of which the triple ones are not read. As `recover_topics`, to the
    noise of the directions beyond the K-th, in O(nnz K + d K^2) a step and O((d + K) m) memory.
    """
    first, pairs, W = moments.first_moment(), moments.pair_moment(), moments.whitening
    root = whitening_root(second_moment_within(first, pairs, W, alpha_0), n_components)
    whitening, pairs = np.ascontiguousarray(W @ root), pairs @ root
    association = DocumentAssociation(whitening, alpha_0, first, whitening.T @ pairs)
    usable = documents.sharing(documents.usable)
    halves = [usable.where(half_of(0, len(usable)) == half) for half in range(2)]

    def apply(vectors: Array) -> tuple[Array, Array]:
        association.begin(vectors)
        association.add(halves[0])
        half = association.answer()
        association.add(halves[1])
        return (whole := association.answer()), half - whole

    # Words far from each other are among those of the longest rows.
    lengths = np.einsum("wk,wk->w", whitening, whitening)
    longest = np.sort(np.argsort(-lengths, kind="stable")[: STARTS_AMONG * n_components])
    found = joint_power(apply, word_starts(whitening[longest]))
    return topics_along(first, pairs, whitening, *found, n_components, alpha_0, moments.documents)
