"""Settings of a private run, and all that follows from them before a document is read.

All of it is public: the stages and their record slots, the noise multiplier, the columns of the
projection.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

from streamlda.engine.settings import WHITENED_TENSOR, TopicSettings
from streamlda.errors import at_least, between, one_of, require
from streamlda.guarantee import mechanism
from streamlda.guarantee.accounting import noise_multiplier, sampler_factor
from streamlda.guarantee.matrix_mechanism import BufferedToeplitz
from streamlda.guarantee.noise import Noise
from streamlda.privacy.clipping import N_BINS, ClipBounds
from streamlda.privacy.events import Approximate, GaussianRelease
from streamlda.privacy.ledger.terms import MODES
from streamlda.spectral.seeds import SeedTopic, check_seeds

#: Without a projection, the pair statistic has d^2 cells: up to this many words.
DENSE_FEATURES = 1024

#: Columns of the random projection for larger vocabularies: K + oversampling, or this many times K.
#: A narrow sketch wastes what the noise leaves, a wide one costs time.
COLUMNS_PER_TOPIC = 6

#: A stage of norms has this fraction of a window, or `NORMS_PER_NOISE` documents for each that the
#: noise in a bin stands for, so that the quantile is found; at most `MOST_NORMS` of a window. What
#: is not found is replaced by the largest norm there can be.
NORMS_FRACTION, NORMS_PER_NOISE, MOST_NORMS = 0.015, 18.0, 0.1

#: Methods that find topics in the last part of a window.
NOISY_POWER, SIMULTANEOUS = "noisy-power", "simultaneous"

#: Fraction of a window's slots for triples, or for the rounds of a power method, and its default
#: number of iterations. The many rounds of "noisy-power" need more slots.
TRIPLES_FRACTION = {WHITENED_TENSOR: 0.12, NOISY_POWER: 0.50, SIMULTANEOUS: 0.30}
SOLVERS = tuple(TRIPLES_FRACTION)
ITERATIONS = {NOISY_POWER: 4, SIMULTANEOUS: 8}

#: Most of delta that the distance of the sampler from exact noise may take.
MOST_SET_ASIDE = 0.1

#: Fewest slots of a window.
LEAST_WINDOW = 100

_noise_multiplier = lru_cache(noise_multiplier)

#: Stages of refinement (`streamlda.private.refinement`): one moves topics of common words, and in
#: one documents compare them with word frequencies. Fractions of a window's slots.
REFINE, CHOICE = "refine", "choice"
REFINEMENT_STAGES = {REFINE: 0.54, CHOICE: 0.015}

#: Stages before these (`streamlda.private.common_words`), and fractions of the other slots.
COMMON_STAGES = {"common words": 0.17, "common pairs": 0.83}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateSettings(TopicSettings):
    """Settings of a private run, fixed for its life. All of it is public.

    n_components is the most topics of a snapshot, fewer where noise would hide them. alpha_0 None
    chooses it from the released statistics. The seed is that of the public random projection and
    the restarts: it seeds no noise. The solver is one release of the whole tensor, or rounds that
    answer a power method (`streamlda.private.power`). In prefix mode rounds then take one step of
    it.
    """

    epsilon: float  # What the releases of the run may cost one privacy unit in all.
    delta: float
    #: N, slots of a window (and of a round in ``prefix`` mode); at least 100.
    documents_per_snapshot: int
    neighboring_relation: str = "zero-out"
    privacy_unit: str = "document"
    #: For users: most documents of one user that count in a stage.
    documents_per_user: int | None = None
    #: Most snapshots. None (no limit) for documents only: users spend on each.
    snapshots: int | None = None
    mode: str = "window"
    #: Bounds from a private quantile of earlier documents, the largest norms there can be
    #: ("worst-case"), or public numbers.
    clipping: str | ClipBounds = "quantile"
    n_restarts: int = 3  # L, random starts of a component (``noisy-power``) or of common words.
    #: R, power iterations, `ITERATIONS` by default: a window has K (R + 1) rounds (``noisy-power``)
    #: or R.
    n_iterations: int | None = None
    #: 1 for topics of common words, refined by fresh documents in a round of their own
    #: (`streamlda.private.refinement`): in window mode with the whole tensor. 0 for topics of
    #: moments. By default 1 with more than `DENSE_FEATURES` words.
    refinement_rounds: int | None = None
    #: Digest of the public model that windows begin with (`streamlda.private.public_start`).
    public_model: str | None = None
    #: The first topics are about these words, which are public (`streamlda.private.seeds`).
    seed_topics: tuple[SeedTopic, ...] = ()

    solvers: ClassVar[tuple[str, ...]] = SOLVERS

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Return the settings that `dataclasses.asdict` gave these values of."""
        clipping = values["clipping"]
        known = ClipBounds(**clipping) if isinstance(clipping, Mapping) else clipping
        return cls(**{**values, "clipping": known})

    def list_differences(self, values: Mapping[str, Any]) -> list[str]:
        """Return differences from a saved state as ``name=value (saved: value)``."""
        own, values = (json.loads(json.dumps(each)) for each in (asdict(self), values))
        return [
            f"{name}={own.get(name)!r} (saved: {values.get(name)!r})"
            for name in sorted({*own, *values})
            if name not in own or name not in values or own[name] != values[name]
        ]

    def __post_init__(self) -> None:
        TopicSettings.__post_init__(self)
        at_least(LEAST_WINDOW, documents_per_snapshot=self.documents_per_snapshot)
        if self.alpha_0 is not None:
            # Single precision must not lose what a round of refinement starts from.
            between(1e-6, 1e6, alpha_0=self.alpha_0)
        if self.refinement_rounds is not None:
            between(0, 1, refinement_rounds=self.refinement_rounds)
        object.__setattr__(self, "seed_topics", check_seeds(self.seed_topics, self.n_components))
        one_of(("document", "user"), privacy_unit=self.privacy_unit)
        one_of(MODES, mode=self.mode)
        relation = mechanism.check_relation(self.neighboring_relation)
        object.__setattr__(self, "neighboring_relation", relation)
        if self.documents_per_user is not None:
            at_least(1, documents_per_user=self.documents_per_user)
        if self.snapshots is not None:
            at_least(1, snapshots=self.snapshots)
        known = isinstance(self.clipping, ClipBounds) or self.clipping in ("quantile", "worst-case")
        rule = "clipping must be quantile, worst-case or ClipBounds"
        require(known, rule, clipping=self.clipping)
        by_user, by_prefix = self.privacy_unit == "user", self.mode == "prefix"
        names = ["privacy_unit", "documents_per_user", "mode", "snapshots"]
        found = {name: getattr(self, name) for name in [*names, "solver", "refinement_rounds"]}
        rules = {
            "documents_per_user must be a number for users, and None for documents": (
                by_user == (self.documents_per_user is not None)
            ),
            "snapshots must be a number for users, who pay for each": (
                self.snapshots is not None or not by_user
            ),
            "a refinement has no rounds of its own unless the mode is window": (
                not by_prefix or not self.refines
            ),
            "refinement cannot follow a power method": (
                self.solver == WHITENED_TENSOR or not self.refines
            ),
        }
        if self.public_model is not None:
            rules[
                "a public model begins only windows of the whole tensor with clipping by a quantile"
            ] = not by_prefix and (self.solver, self.clipping) == (WHITENED_TENSOR, "quantile")
            found["clipping"] = self.clipping
        for rule, holds in rules.items():
            require(holds, rule, **found, remedy="change one of these")
        numbered = [fraction for name, fraction in self.stages.items() if name[-1].isdigit()]
        slots = int(min(numbered, default=1.0) * self.documents_per_snapshot * (1 + 1e-9))
        require(
            slots >= 1,
            "a round has no slot",
            slots=slots,
            rounds=len(numbered),
            documents_per_snapshot=self.documents_per_snapshot,
            remedy="take larger windows, or fewer components or iterations",
        )
        z = self.noise_multiplier  # raises if epsilon or delta is out of range
        if by_prefix and not by_user:
            self._check_rows(z)

    def _check_rows(self, z: float) -> None:
        """Refuse rounds whose sums would not fit, before a window is paid for.

        Steps are powers of two: with one block in place of theirs they are at most twice as large.
        """
        strategy = BufferedToeplitz(horizon=self.snapshots)
        mechanism.JointGaussian(
            [mechanism.Block("all sums of a round", (self._cells,), 1.0)],
            z,
            n_max=2 * math.ceil(self.documents_per_snapshot * strategy.gain),
            releases=strategy.rounds,
            strategy_sensitivity=strategy.sensitivity,
            neighboring_relation=self.neighboring_relation,
        )

    @property
    def iterations(self) -> int:
        """R of a power method, 0 for the whole tensor."""
        return ITERATIONS.get(self.solver, 0) if self.n_iterations is None else self.n_iterations

    @property
    def n_rounds(self) -> int:
        """Rounds of a power method in a window; 0 for the whole tensor."""
        if self.solver == WHITENED_TENSOR:
            return 0
        if self.solver == SIMULTANEOUS:
            return self.iterations
        return min(self.n_components, self.n_features) * (self.iterations + 1)

    @property
    def refines(self) -> bool:
        """True if topics are found by common words and refined, False if by moments."""
        if self.refinement_rounds is not None:
            return self.refinement_rounds > 0
        usual = (self.mode, self.solver) == ("window", WHITENED_TENSOR)
        return usual and self.n_columns is not None

    def noise_in_documents(self, multiplier: float) -> float:
        """Return the stddev of noise of nonnegative sums, in a document's largest contributions."""
        noise = multiplier * (self.documents_per_user or 1)
        return noise * math.sqrt(2.0) if self.neighboring_relation == "replace-one" else noise

    @property
    def word_noise(self) -> float:
        """Noise in the frequency of the mean word, d z / N, over that frequency."""
        noise = self.noise_in_documents(self.noise_multiplier)
        return self.n_features * noise / self.documents_per_snapshot

    @property
    def stages(self) -> dict[str, float]:
        """Stages of a window and their fractions of its slots; public numbers decide these.

        Rounds of a power method are numbered: ``power 1``, ``power 2`` and so on.
        """
        first = self._cut(self._norms_fraction)
        if not self.refines:
            return first
        others = 1 - sum(REFINEMENT_STAGES.values())
        return {name: others * part for name, part in first.items()} | REFINEMENT_STAGES

    @property
    def n_stages(self) -> int:
        """Stages of a window: how often a user may be in one."""
        return len(self._cut(NORMS_FRACTION)) + self.refines * len(REFINEMENT_STAGES)

    @property
    def _norms_fraction(self) -> float:
        """Fraction of each stage of norms in the slots that are not for refinement."""
        noise = self.noise_in_documents(self.noise_multiplier) / self.documents_per_snapshot
        return min(max(NORMS_PER_NOISE * noise, NORMS_FRACTION), MOST_NORMS)

    def _cut(self, norms: float) -> dict[str, float]:
        """Return all stages before those of refinement, as fractions of their slots."""
        measured = self.clipping == "quantile"
        if self.refines:
            before = {"norms": norms} if measured else {}
            left = 1 - sum(before.values())
            return before | {name: left * part for name, part in COMMON_STAGES.items()}
        last = TRIPLES_FRACTION[self.solver]
        found = {"pairs": 1 - last}
        if measured:
            found = {"norms": norms, "pairs": 1 - last - 2 * norms, "triple norms": norms}
        names = [f"power {i}" for i in range(1, self.n_rounds + 1)] or ["triples"]
        return found | dict.fromkeys(names, last / len(names))

    @property
    def n_columns(self) -> int | None:
        """Columns m of the random projection; None for none."""
        d, K = self.n_features, self.n_components
        if d <= DENSE_FEATURES:
            return None
        return min(d, max(K + self.oversampling, COLUMNS_PER_TOPIC * K))

    @property
    def _cells(self) -> int:
        """Most values of all that a document is in, of one release or row."""
        d, t = self.n_features, self.n_components
        pair = d * (d + 1) // 2 if self.n_columns is None else d * self.n_columns
        last = t * (t + 1) * (t + 2) // 6 + t * (t + 1) // 2 + t
        if self.solver != WHITENED_TENSOR:
            last = t * max(t, self.n_restarts)
        # A document is in one stage: norms, or at most all else.
        refined = 0 if self.public_model is None else d * (self.n_components + 1)
        if self.refines:
            n = min(d, DENSE_FEATURES)
            pair, refined = max(pair, n * (n + 1) // 2), (d + 2) * (self.n_components + 2) + N_BINS
        return max(2 * N_BINS + 8, pair + d + last + 8, refined)

    @property
    def tv_distance(self) -> float:
        """Bound on the distance of all noise of a unit from exact noise, as neighbours tell."""
        cells = self._cells
        if self.mode == "window":
            return 2 * Noise.tv_distance_bound * cells
        # A document of prefix mode is in all later rows; for users a row is a round alone.
        rows = 1 if self.privacy_unit == "user" else self.snapshots or mechanism.MAX_ROWS
        return 2 * max(Noise.tv_distance_bound, mechanism.ROW_TV_DISTANCE * rows) * cells

    @property
    def delta_left(self) -> float:
        """The part of delta left to Gaussian noise, after the distance of the sampler to it."""
        distance = self.tv_distance * self._releases(self.n_stages)
        loss = distance * sampler_factor(self.epsilon)
        check_sampler_loss(self.delta, loss, self.delta * MOST_SET_ASIDE)
        return float(self.delta - loss)

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation over sensitivity of every release, from the exact accounting."""
        return _noise_multiplier(self.epsilon, self.delta_left, self._releases(self.n_stages))

    def _releases(self, stages: int) -> int:
        """Releases that a unit is in: users are in every stage of every window, and every round."""
        if self.privacy_unit == "document":
            return 1
        assert self.snapshots is not None
        return stages * self.snapshots if self.mode == "window" else stages + self.snapshots - 1

    @property
    def event(self) -> Approximate:
        """Cost of one stage for each of its units."""
        return Approximate(GaussianRelease(self.noise_multiplier), self.tv_distance)

    def stage_slots(self) -> list[tuple[str, int, int]]:
        """Return name, first slot and last slot + 1 of each stage of a window.

        With a public model, those of its one release too, which may take the place of all others.
        """
        stages = slots_of(self.stages, self.documents_per_snapshot)
        if self.public_model is not None:
            stages.insert(1, ("public", stages[0][2], self.documents_per_snapshot))
        return stages

    @property
    def least_slots(self) -> int:
        """Fewest slots with which a stream that ends gives a first snapshot."""
        _, first, last = self.stage_slots()[-1]
        return last - slots_to_spare(last - first)


def check_sampler_loss(delta: float, loss: float, most: float) -> None:
    """Refuse a delta of which the distance of the sampler to exact noise takes too much."""
    rule = "delta must be at least ten times what the exactness of the noise leaves open"
    remedy = "take a larger delta, a smaller epsilon or, in prefix mode, fewer snapshots"
    require(loss <= most, rule, delta=delta, open=f"{loss:.2g}", remedy=remedy)


def slots_of(stages: Mapping[str, float], n_slots: int) -> list[tuple[str, int, int]]:
    """Return name, first slot and last slot + 1 of stages with these fractions of a window."""
    found, first, passed = [], 0, 0.0
    for name, fraction in stages.items():
        passed += fraction
        last = max(first + 1, round(passed * n_slots))
        found.append((name, first, last))
        first = last
    return found


def slots_to_spare(slots: int) -> int:
    """Return how many slots of a last stage may be missing where the stream ends: half of them."""
    return slots // 2
