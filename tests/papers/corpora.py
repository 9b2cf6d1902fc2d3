"""Small documents and planted corpora for the tests of published systems."""

from itertools import product

import numpy as np

from streamlda.simulate import PlantedLDA


def random_documents(n, d, rng, longest=7):
    return [rng.integers(0, d, rng.integers(0, longest + 1)).tolist() for _ in range(n)]


def planted(n, d=12, k=2, alpha_0=0.5, seed=0, concentration=0.3):
    """Return a planted corpus with shares of alpha 1 : 2 : ..., and n documents of it."""
    shares = np.arange(1.0, k + 1)
    corpus = PlantedLDA(
        k,
        d,
        alpha=alpha_0 * shares / shares.sum(),
        topic_concentration=concentration,
        mean_length=60,
        seed=seed,
    )
    return corpus, corpus.documents(n)


def vector_partitions(total):
    """Yield every multiset of nonzero vectors of counts with this sum, largest vectors first."""

    def rest(left, most):
        if not any(left):
            yield ()
            return
        for part in product(*(range(n, -1, -1) for n in left)):
            if any(part) and part <= most:
                smaller = tuple(a - b for a, b in zip(left, part, strict=True))
                for others in rest(smaller, part):
                    yield (part, *others)

    yield from rest(tuple(total), tuple(total))


def sym3(pairs, vector):
    """Return the sum over the three places of the vector in a symmetric tensor."""
    placed = np.multiply.outer(pairs, vector)
    return placed + placed.transpose(0, 2, 1) + placed.transpose(2, 0, 1)
