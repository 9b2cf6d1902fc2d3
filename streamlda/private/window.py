"""The stages of one window: the statistics of each, and its results for later stages.

Nothing here sees a document: all that a `Window` holds was made of released sums and public
settings, so it may be shown, and it costs no privacy to read it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.engine.settings import WHITENED_TENSOR
from streamlda.errors import InsufficientDataError, failure, require
from streamlda.privacy.clipping import ClipBounds, holds_documents, norm_edges, private_quantile
from streamlda.privacy.statement import ReleasedStage
from streamlda.private import common_words, contributions
from streamlda.private.common_words import Frequencies
from streamlda.private.packing import unpack_pairs, unpack_triples
from streamlda.private.power import PowerRounds
from streamlda.private.public_start import FITS, PUBLIC, FitsStatistic, PublicTopics
from streamlda.private.refinement import Refinement
from streamlda.private.settings import CHOICE, REFINE, REFINEMENT_STAGES, PrivateSettings
from streamlda.private.topics import PairView, PrivateTopics, check_documents, private_topics
from streamlda.spectral.whitening import random_projection
from streamlda.utils.arrays import Array, Arrays

Sums = Mapping[str, Array]

#: Slots of a stage of norms, in standard deviations of its noise, of which documents are seen if
#: half of them hold one: over ten bins that is 2.5 of them in each.
TELLING_SLOTS = 50

#: Name of the rounds after the first window in ``prefix`` mode.
PREFIX = "prefix"

#: Fraction of documents that are clipped, over the noise of a direction, sqrt(d) z / n; a twentieth
#: to a half: clipping bends the moments, noise hides it.
CLIPPED_BY_NOISE = 200.0


@dataclass(frozen=True, slots=True)
class PrivateSnapshot:
    """Topics of one snapshot, `number` from 1, and their sources; all of it may be published."""

    number: int
    topics: PrivateTopics
    #: The releases that they were made from, for the privacy statement.
    stages: tuple[ReleasedStage, ...]
    bounds: ClipBounds
    #: Stages of the window that were not released.
    missing: tuple[str, ...] = ()


class Window:
    """Results of the released stages of a window.

    `public` is what a public model says of topics.
    """

    def __init__(self, settings: PrivateSettings, public: PublicTopics | None = None) -> None:
        self.settings, self.public = settings, public
        d, m = settings.n_features, settings.n_columns
        #: The public random projection, where a run has one.
        self.probes = None if m is None else random_projection(d, m, settings.seed)
        self.fits: Array | None = None
        self.records: list[ReleasedStage] = []
        #: Noisy sums by stage, which `accept` has taken; without those of rounds of prefix mode.
        self.released: dict[str, Sums] = {}
        self.bounds = ClipBounds(1.0, 1.0, 1.0, "private-quantile")
        self.view: PairView | None = None
        self.whitening: Array | None = None
        self.power: PowerRounds | None = None
        self.refinement: Refinement | None = None
        #: Before refinement: the frequencies of all words, and which are common.
        self.frequencies: Frequencies | None = None
        self.common: NDArray[np.int64] | None = None
        if settings.refines:
            self.bounds = common_words.BOUNDS
        elif isinstance(settings.clipping, ClipBounds):
            self.bounds = settings.clipping
        elif settings.clipping == "worst-case":
            pair = self._pair().largest_norm
            self.bounds = replace(self.bounds, pair=pair, source="worst-case")

    @property
    def first_stage(self) -> str:
        """Name of the stage that a window begins with."""
        return next(iter(self.settings.stages))

    def statistics(self, stage: str) -> list[contributions.Statistic]:
        """Return the statistics of a stage, made from the results of earlier stages."""
        if stage == "norms":
            norms: list[contributions.Statistic] = [contributions.NormStatistic(self._first(), 0.3)]
            norms.append(contributions.NormStatistic(self._pair(), 0.7))
            return norms if self.public is None else [*norms, FitsStatistic(self.public)]
        if stage == PUBLIC and self.public:
            return [self.public.shares()]
        if stage in (common_words.WORDS, common_words.PAIRS):
            return common_words.statistics(stage, self.common, self.settings.n_features)
        if stage == "pairs":
            return [self._first(), self._pair()]
        if stage == "triple norms":
            return [
                contributions.NormStatistic(contributions.TripleStatistic(self._projection()), 1.0)
            ]
        if stage == "triples":
            return [self._triple()]
        if stage == PREFIX:
            power, bound = self.power, self.bounds.triple
            last = power.statistic(bound, contributions.LESSER_WEIGHT) if power else self._triple()
            return [self._first(), self._pair(), last]
        if self.refinement and stage in REFINEMENT_STAGES:
            return self.refinement.round() if stage == REFINE else self.refinement.choice()
        if self.power and stage.startswith("power "):
            return [self.power.statistic(self.bounds.triple)]
        raise KeyError(stage)

    def accept(
        self, stage: str, sums: Sums, stddevs: Mapping[str, float], slots: int
    ) -> str | PrivateTopics:
        """Take the noisy sums of a stage, and return the name of the next one, or the topics.

        `slots` are those of the window so far, for the record.
        """
        # Rounds of a power method are numbered.
        kind = stage.rstrip("0123456789").rstrip()
        if kind == "norms":
            _check_seen(sums, stddevs, slots)
            first, pair = self._first().largest_norm, self._pair().largest_norm
            if not self.settings.refines:
                self._set_bounds(sums, stddevs, first=first, pair=pair)
            if FITS in sums:
                self.fits = np.array([float(sums[FITS]), stddevs[FITS]])
                if self.fits[0] > 0:
                    return PUBLIC
            return common_words.WORDS if self.settings.refines else "pairs"
        if kind == PUBLIC:
            assert self.public is not None
            wanted, alpha_0 = self.settings.n_components, self.settings.alpha_0
            found = self.public.move_topics(sums, stddevs, wanted, alpha_0, slots)
            return replace(found, fits=self.fits)
        if kind == common_words.WORDS:
            public = None if self.public is None else self.public.words
            self.frequencies = Frequencies(self.settings.n_features, public)
            self.frequencies.add(sums["first"], stddevs["first"])
            words = self.frequencies.distribution()
            self.common = common_words.common_words(words, self.settings)
            return common_words.PAIRS
        if kind == common_words.PAIRS:
            return self._begin_refinement(sums, stddevs, slots)
        if kind == "pairs":
            self.view = self._pair_view(sums, stddevs)
            self.whitening = self.view.whitening
            if self.settings.clipping == "quantile":
                return "triple norms"
            if self.settings.clipping == "worst-case":
                largest = contributions.TripleStatistic(self.whitening).largest_norm
                self.bounds = replace(self.bounds, triple=largest)
            return self._begin_last()
        if kind == "triple norms":
            self._set_bounds(
                sums,
                stddevs,
                triple=contributions.TripleStatistic(self._projection()).largest_norm,
            )
            return self._begin_last()
        if kind == "triples":
            assert self.view is not None
            found = self._triple_topics(self.view, sums, stddevs, slots)
            return replace(found, fits=self.fits)
        if kind == PREFIX:
            view = self._pair_view(sums, stddevs)
            if self.power:
                rng = np.random.default_rng(self.settings.seed)
                return self.power.turn(sums, stddevs, view).topics(slots, rng)
            return self._triple_topics(view, sums, stddevs, slots)
        if kind == CHOICE:
            assert self.refinement is not None
            last = self.records[-1]
            self.refinement.compare(sums, stddevs, last.last + 1 - last.first)
            return self.refinement.topics()
        if kind == REFINE:
            assert self.refinement is not None
            self.refinement.answer(sums, stddevs)
            return CHOICE
        number = int(stage.removeprefix(kind))
        assert self.power is not None
        self.power.answer(sums, stddevs)
        if number < self.settings.n_rounds:
            return f"power {number + 1}"
        return self.power.topics(slots, np.random.default_rng(self.settings.seed))

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the stages that were not released."""
        released = {record.name for record in self.records}
        if self.fits is not None and self.fits[0] > 0:
            return () if PUBLIC in released else (PUBLIC,)
        stages = [name for name, *_ in self.settings.stage_slots() if name != PUBLIC]
        return tuple(name for name in stages if name not in released)

    def so_far(self) -> PrivateTopics:
        """Return the topics of the releases so far, where later stages are missing."""
        if self.refinement is None:
            raise failure(
                "releases of stages before refinement are missing",
                released=", ".join(record.name for record in self.records) or None,
                missing=", ".join(self.missing),
                error=InsufficientDataError,
            )
        return self.refinement.topics()

    def snapshot(self, number: int, topics: PrivateTopics) -> PrivateSnapshot:
        """Return topics as a snapshot, with their sources."""
        return PrivateSnapshot(number, topics, tuple(self.records), self.bounds, self.missing)

    @property
    def arrays(self) -> Arrays:
        """Noisy sums by the names ``STAGE/BLOCK``; all else follows from them and the settings."""
        return {
            f"{stage}/{block}": sums
            for stage, released in self.released.items()
            for block, sums in released.items()
        }

    def _set_bounds(self, sums: Sums, stddevs: Mapping[str, float], **largest: float) -> None:
        """Clip at a quantile of the norms, whose noisy counts are released; up to the largest."""
        settings = self.settings
        slots = {name: last - first for name, first, last in settings.stage_slots()}
        noise = np.sqrt(settings.n_features) * settings.noise_multiplier / slots["pairs"]
        q = float(np.clip(1 - CLIPPED_BY_NOISE * noise, 0.5, 0.95))
        for name, norm in largest.items():
            counts, stddev = sums[f"{name}_norms"], stddevs[f"{name}_norms"]
            found: Any = {name: private_quantile(counts, norm_edges(norm), q, stddev)}
            self.bounds = replace(self.bounds, **found)

    def _pair_view(self, sums: Sums, stddevs: Mapping[str, float]) -> PairView:
        settings, pair, stddev = self.settings, sums["pair"], stddevs["pair"]
        if self.probes is None:
            # Off the diagonal the packed entries stand for sqrt(2) times their value.
            pair, stddev = unpack_pairs(pair, settings.n_features), stddev / np.sqrt(2)
        return PairView.of(
            sums["first"],
            stddevs["first"],
            pair,
            float(sums["pair_kept"]),
            stddev,
            self.probes,
            min(settings.n_components, settings.n_features),
            settings.working_alpha_0,
        )

    def _triple_topics(
        self, view: PairView, sums: Sums, stddevs: Mapping[str, float], slots: int
    ) -> PrivateTopics:
        whitening, kept = self._projection(), float(sums["triple_kept"])
        check_documents(kept)
        t = whitening.shape[1]
        return private_topics(
            view,
            unpack_triples(sums["triple"], t) / kept,
            stddevs["triple"] / np.sqrt(6) / kept,
            whitening,
            sums["triple_first"] / kept,
            unpack_pairs(sums["triple_pair"], t) / kept,
            self.settings.alpha_0,
            slots,
            np.random.default_rng(self.settings.seed),
        )

    def _begin_last(self) -> str:
        if self.settings.solver == WHITENED_TENSOR:
            return "triples"
        assert self.view is not None
        self.power = PowerRounds(self.settings, self.view, self._projection())
        return "power 1"

    def _begin_refinement(self, sums: Sums, stddevs: Mapping[str, float], slots: int) -> str:
        assert self.frequencies is not None
        assert self.common is not None
        self.frequencies.add(sums["first"], stddevs["first"])
        pairs = sums["pair"], stddevs["pair"]
        known = self.common, self.frequencies.distribution()
        found = common_words.topics_of(*pairs, *known, self.settings, slots)
        found = replace(found, fits=self.fits)
        self.refinement = Refinement(self.settings, found, self.frequencies)
        return REFINE

    def _first(self) -> contributions.FirstStatistic:
        return contributions.FirstStatistic(
            self.settings.n_features, self.bounds.first, contributions.LESSER_WEIGHT
        )

    def _pair(self) -> contributions.PairStatistic:
        d = self.settings.n_features
        return contributions.PairStatistic(d, self.probes, self.bounds.pair, 1.0)

    def _triple(self) -> contributions.TripleStatistic:
        return contributions.TripleStatistic(
            self._projection(), self.bounds.triple, contributions.LESSER_WEIGHT
        )

    def _projection(self) -> Array:
        assert self.whitening is not None
        return self.whitening


def _check_seen(sums: Sums, stddevs: Mapping[str, float], slots: int) -> None:
    """Refuse norms that show no document in more slots than noise would hide."""
    norms = ("first_norms", "pair_norms")
    shows = any(holds_documents(sums[name], stddevs[name]) for name in norms)
    require(
        shows or slots < TELLING_SLOTS * min(stddevs.values()),
        "the first slots of a private window show no documents above the noise",
        slots=slots,
        shown=0,
        remedy="check that records have their text, and their user, where the settings say "
        "(source.text_field, source.user_field), or take larger windows",
        error=InsufficientDataError,
    )
