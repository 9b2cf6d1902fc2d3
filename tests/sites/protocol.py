"""Sites of a small federation, at work in one process; for the tests of the protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.privacy.ledger import Ledger
from streamlda.privacy.noise import Noise
from streamlda.private.settings import PrivateSettings
from streamlda.simulate import PlantedLDA
from streamlda.sites.aggregate import Aggregate, aggregate
from streamlda.sites.federation import FederationConfig, Member
from streamlda.sites.keys import SiteKeys
from streamlda.sites.rounds import Round
from streamlda.sites.share import Share
from streamlda.sites.site import ShareAccumulator, Site
from streamlda.text.vocabulary import Vocabulary

D = 30


def settings_of(**changes: Any) -> PrivateSettings:
    values: dict[str, Any] = {
        "n_components": 2,
        "n_features": D,
        "epsilon": 4.0,
        "delta": 1e-5,
        "documents_per_snapshot": 600,
        "clipping": "worst-case",
    }
    return PrivateSettings(**(values | changes))


def words_of(d: int) -> Vocabulary:
    return Vocabulary.given(f"w{i:03d}" for i in range(d))


def keys_of(n: int) -> list[SiteKeys]:
    return [SiteKeys.generate(f"site{i}") for i in range(n)]


def config_of(
    keys: list[SiteKeys],
    settings: PrivateSettings | None = None,
    weights: list[float] | None = None,
    colluders: int = 0,
    **changes: Any,
) -> FederationConfig:
    settings = settings_of() if settings is None else settings
    weights = [1 / len(keys)] * len(keys) if weights is None else weights
    members = tuple(Member(k.public, w) for k, w in zip(keys, weights, strict=True))
    values: dict[str, Any] = {"label": "test", "vocabulary": words_of(settings.n_features)}
    return FederationConfig(
        members=members, settings=settings, colluders=colluders, **(values | changes)
    )


def planted(n: int, d: int = D, seed: int = 1) -> DocumentBatch:
    return PlantedLDA(2, d, mean_length=20, seed=seed).documents(n)


def counts_of(batch: DocumentBatch) -> np.ndarray:
    counts = np.zeros((batch.n_documents, batch.n_features))
    rows = np.repeat(np.arange(batch.n_documents), np.diff(batch.row_pointers))
    counts[rows, batch.word_ids] = batch.counts
    return counts


def added(parts: Iterable[np.ndarray]) -> np.ndarray:
    """Return the sum modulo 2^64, as signed numbers."""
    return np.sum(np.array(list(parts), dtype=np.uint64), axis=0).view(np.int64)


def spent(sites: Sites) -> dict[str, int]:
    """Return how many shares each site has paid for."""
    return {name: site.ledger.generation for name, site in sites.sites.items()}


def filled(batch: DocumentBatch) -> Callable[[ShareAccumulator], None]:
    """Return what gives an accumulator these rows."""

    def fill(accumulator: ShareAccumulator) -> None:
        accumulator.add(batch)

    return fill


def signed(sites: Sites, share: Share, **changes: Any) -> Share:
    """Return a share that its own site has made otherwise."""
    made = replace(share, **changes)
    keys = {k.public.name: k for k in sites.keys}[share.site]
    return replace(made, signature=keys.sign(made.content))


def moved(share: Share, by: int) -> dict[str, np.ndarray]:
    """Return the arrays of a share with a number added to all."""
    return {name: values + np.uint64(by) for name, values in share.arrays.items()}


@dataclass
class Sites:
    """All sites of a config, each with a ledger and documents of its own.

    Use it as a context: ledgers are closed at the end.
    """

    config: FederationConfig
    keys: list[SiteKeys]
    folder: Path
    noise: Noise | None = None
    opened: ExitStack | None = None

    def __enter__(self) -> Self:
        self.opened = ExitStack()
        self.sites = {k.public.name: self.site(k) for k in self.keys}
        self.documents = {
            name: planted(2000, self.config.settings.n_features, seed)
            for seed, name in enumerate(self.sites, 1)
        }
        return self

    def __exit__(self, *args: object) -> None:
        assert self.opened is not None
        self.opened.close()

    def site(self, keys: SiteKeys) -> Site:
        assert self.opened is not None
        path = self.folder / f"{keys.public.name}.ledger"
        ledger = self.opened.enter_context(
            Ledger.open(path, self.config.ledger_terms(), create=True)
        )
        return Site(self.config, keys, ledger, keys.public.name, self.noise)

    def share(self, name: str, this: Round) -> Share:
        return Share.load(self.sites[name].make_share(this, filled(self.documents[name])))

    def shares(self, this: Round) -> list[Share]:
        return [self.share(name, this) for name in self.sites]

    def answer(self, this: Round) -> Aggregate:
        return aggregate(self.config, this, self.shares(this))
