"""Sites of a small federation, at work in one process; for the tests of the protocol."""

from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from streamlda.privacy.ledger import Ledger
from streamlda.private.settings import PrivateSettings
from streamlda.simulate import PlantedLDA
from streamlda.sites.aggregate import aggregate
from streamlda.sites.announcement import RoundKeys
from streamlda.sites.federation import FederationConfig, Member
from streamlda.sites.keys import SiteKey
from streamlda.sites.rounds import Round
from streamlda.sites.share import Share
from streamlda.sites.site import Site
from streamlda.text.vocabulary import Vocabulary

D = 30


TOPICS = {"n_components": 2, "n_features": D, "documents_per_snapshot": 600}
settings_of = partial(PrivateSettings, **TOPICS, epsilon=4.0, delta=1e-5, clipping="worst-case")


def words_of(d, letter="w"):
    return Vocabulary.given(f"{letter}{i:03d}" for i in range(d))


def keys_of(n):
    return [SiteKey.generate(f"site{i}") for i in range(n)]


HUB = SiteKey.generate("hub")


def config_of(keys, settings=None, weights=None, colluders=0, **changes):
    settings = settings_of() if settings is None else settings
    weights = [1 / len(keys)] * len(keys) if weights is None else weights
    members = tuple(Member(k.public, w) for k, w in zip(keys, weights, strict=True))
    values = {"label": "test", "vocabulary": words_of(settings.n_features)}
    values |= {"aggregator": HUB.public} | changes
    return FederationConfig(members=members, settings=settings, colluders=colluders, **values)


def planted(n, d=D, seed=1):
    return PlantedLDA(2, d, mean_length=20, seed=seed).documents(n)


def add_up(parts):
    """Return the sum modulo 2^64, as signed numbers."""
    return np.sum(np.array(list(parts), dtype=np.uint64), axis=0).view(np.int64)


def releases(sites):
    return {name: site.ledger.generation for name, site in sites.sites.items()}


def giver(batch):
    """Return what adds these rows to an accumulator."""
    return lambda accumulator: accumulator.add(batch)


def sign(sites, share, **changes):
    keys = {k.public.name: k for k in sites.keys}[share.site]
    return replace(share, **changes).sign(keys)


def shift(share, by):
    return {name: values + np.uint64(by) for name, values in share.arrays.items()}


class Sites:
    def __init__(self, config, keys, folder, noise=None):
        self.config, self.keys, self.folder, self.noise = config, keys, folder, noise
        self.opened = ExitStack()

    @classmethod
    def of(cls, n, folder, noise=None, weights=None, colluders=0, **changes):
        keys = keys_of(n)
        return cls(config_of(keys, settings_of(**changes), weights, colluders), keys, folder, noise)

    def __enter__(self):
        self.sites = {k.public.name: self.site(k) for k in self.keys}
        self.first = self.first_of(self.config)
        return self

    def __exit__(self, *args):
        self.opened.close()

    @cached_property
    def documents(self):
        d = self.config.settings.n_features
        return {name: planted(2000, d, seed) for seed, name in enumerate(self.sites, 1)}

    def site(self, keys):
        name = keys.public.name
        ledger = Ledger.open(self.folder / f"{name}.ledger", self.config.ledger_terms, create=True)
        opened = self.opened.enter_context(ledger)
        return self.site_of(self.config, keys, opened, self.noise)

    def round_keys(self, name):
        return RoundKeys(self.folder / f"{name}.key")

    def announce(self, name, config, number, attempt):
        (key,) = (key for key in self.keys if key.public.name == name)
        return self.round_keys(name).announce(key, config.digest, number, attempt)

    def site_of(self, config, key, ledger, noise=None):
        """Return the site of a key, which has signed the config, whatever the others may learn."""
        name = key.public.name
        round_keys = self.round_keys(name)
        round_keys.announce(key, config.digest, 1, 1)
        return Site(config, key, round_keys, ledger, name, noise, max_epsilon_alone=1e9)

    def first_of(self, config):
        announced = [self.announce(name, config, 1, 1) for name in self.sites]
        return Round.first(config, announced).sign(HUB)

    def again(self, this):
        """Return the next attempt of a round, to which all sites have agreed."""
        attempt = this.attempt + 1
        announced = [self.announce(n, self.config, this.number, attempt) for n in self.sites]
        return this.repeat(self.config, announced).sign(HUB)

    def share(self, name, this):
        return Share.load(self.sites[name].make_share(this, giver(self.documents[name])))

    def shares(self, this):
        return [self.share(name, this) for name in self.sites]

    def answer(self, this):
        found = aggregate(self.config, this, self.shares(this))
        if found.next_round is None:
            return found
        return replace(found, next_round=found.next_round.sign(HUB))
