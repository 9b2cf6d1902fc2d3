"""Sites that learn of rows of numbers, in one process; for the tests of kinds."""

import numpy as np

from streamlda.private.rows import Rows
from streamlda.sites.kinds.table import KINDS
from tests.sites.protocol import Sites, config_of, keys_of

WEIGHTS = [0.2, 0.3, 0.5]

#: Parts of the components of a planted mixture, and how far a row is from its mean.
SHARES, SPREAD = np.array([0.5, 0.3, 0.2]), 0.05


def settings_of(kind, **changes):
    values = {"n_components": 3, "n_features": 8, "epsilon": 2.0, "delta": 1e-5}
    values |= {"documents_per_snapshot": 3000, "snapshots": 1}
    return KINDS[kind].settings(values | {"neighboring_relation": "replace-one"} | changes)


def sites_of(kind, folder, rows, noise=None, colluders=0, **changes):
    """Return three sites of a kind, each with its part of the rows; to be used as a context."""
    settings, keys = settings_of(kind, n_features=rows.shape[1], **changes), keys_of(3)
    config = config_of(keys, settings, WEIGHTS, colluders, kind=kind, vocabulary=None)
    return RowSites(config, keys, folder, noise, rows)


class RowSites(Sites):
    """`Sites` with rows in place of documents."""

    def __init__(self, config, keys, folder, noise, rows):
        super().__init__(config, keys, folder, noise)
        self.rows = rows

    def __enter__(self):
        super().__enter__()
        self.documents = {
            site: Rows(part) for site, part in zip(self.sites, parts(self.rows), strict=True)
        }
        return self


def parts(rows):
    """Return the rows of each site."""
    return np.split(rows, np.cumsum([round(w * len(rows)) for w in WEIGHTS])[:-1])


def planted_subspace(n, d=8, K=3, seed=0):
    """Return n rows near K directions, of norm at most 1, and their second moment."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    rows = rng.standard_normal((n, d)) * np.where(np.arange(d) < K, 0.4, 0.1) @ basis.T
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    return rows, rows.T @ rows / n


def planted_mixture(n, d=8, seed=0):
    """Return n rows of a mixture of three Gaussians, and their means."""
    rng = np.random.default_rng(seed)
    means = 0.8 * np.linalg.qr(rng.standard_normal((d, d)))[0][: len(SHARES)]
    which = rng.choice(len(SHARES), n, p=SHARES)
    return means[which] + SPREAD * rng.standard_normal((n, d)), means
