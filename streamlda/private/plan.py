"""Plan of a private run from its settings alone: stages, noise, and topics to expect.

No document is read. What is expected rests on one number, the noise of a direction
``u = sqrt(d) z / N``: d words, a window of N record slots, and noise of z documents' largest
contributions in a sum (`private-plan` in ``bench/`` measures all of it).

*Text.* A topic shows once its share stands out of the noise. On 195,000 abstracts and 17,000
news posts (8,000 words, K = 10, 20 and 40, epsilon 0.5 to 10) the number of topics shown does not
depend on K, as long as it is below K, and is `SHOWN_TIMES_NOISE` / u (`DENSE_SHOWN_TIMES_NOISE` / u
where all words have pairs) within a factor of two. How well they predict documents depends on the
corpus: at equal u, perplexities over those of the word frequencies differ by a factor of two
between these.

Windows that begin with common words show more of them (`COMMON_SHOWN`, 20,000 to 195,000 abstracts,
K = 20 to 60), and a public model that fits shows all: whether it does, the first stage says.

*Words*. How many a private choice finds depends on its records over its threshold alone: abstracts
and newsgroups, 500 to 60,000 at epsilon 0.5 to 3, differ from `WORDS_CHOSEN` by a fifth, long posts
of a web log have up to twice as many.

*Planted topics*, of equal shares, are easier. Their mean L1 error depends on u K (200 to 5,000
words, 5 to 40 topics, 5,000 to 400,000 documents), and is larger where only common words have
pairs: in 29 cells it was 0.64 to 1.54 times what is expected.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from streamlda.engine.settings import WHITENED_TENSOR
from streamlda.errors import at_least
from streamlda.guarantee.selection import WordSelection
from streamlda.model.table import plural
from streamlda.privacy.statement import SLOTS_ARE_PUBLIC
from streamlda.private.budget import LEAST_WORDS_PER_TOPIC, few_words
from streamlda.private.settings import PrivateSettings

#: Topics of text that are shown, times u.
SHOWN_TIMES_NOISE = 0.016

#: The same with the whole pair statistic: 500 and 1,000 words of 20,000 abstracts, epsilon 1, have
#: 13.5 and 7 topics.
DENSE_SHOWN_TIMES_NOISE = 0.05

#: The same by u, where windows begin with common words; beyond both ends it goes as 1 / u.
COMMON_NOISE = (7e-4, 1.2e-3, 1.9e-3, 2.7e-3, 7e-3, 0.02)
COMMON_SHOWN = (51.0, 30.0, 24.0, 16.0, 9.5, 9.0)

#: Mean L1 error of planted topics by u K, with the whole pair statistic and with common words.
#: Word frequencies in place of topics have 1.7.
PLANTED_NOISE = (1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
DENSE_ERROR = (0.015, 0.022, 0.045, 0.075, 0.115, 0.2, 0.38, 0.85, 1.5, 1.65)
SKETCHED_ERROR = (0.042, 0.06, 0.068, 0.1, 0.145, 0.27, 0.8, 1.4, 1.6, 1.67)

#: Words chosen, by the records that choose over the threshold.
WORDS_RECORDS = (7, 15, 30, 60, 120, 240, 500, 1330, 4700)
WORDS_CHOSEN = (1, 6, 28, 90, 260, 630, 1500, 3600, 7300)

#: Perplexity of text over that of its true word frequencies, by the noise of words
#: (`PrivateSettings.word_noise`): 6,000 to 195,000 abstracts and newsgroups at epsilon 1 and 3
#: differ from it by a tenth; 5,700 articles of news had 1.15 at 3.7.
WORD_NOISE = (0.06, 0.17, 0.25, 0.42, 0.65, 1.1, 1.4, 2.1, 4.0, 5.6)
RATIO = (0.6, 0.69, 0.75, 0.81, 0.9, 0.97, 1.03, 1.16, 1.4, 1.5)

#: Largest such perplexity that is worth having.
MOST_RATIO = 0.95

#: What is looked for: epsilons, in steps of this factor, and numbers of records. Beyond the largest
#: epsilon a delta of 1e-6 does not cover what the sampler leaves open.
LEAST_EPSILON, MOST_EPSILON, EPSILON_STEP = 1e-3, 8.0, 1.05
MOST_RECORDS = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Forecast of a private run; all of it follows from public numbers.

    Attributes
    ----------
    windows : int
        Snapshots that the records give.
    words_records : int
        Record slots that a private choice of words takes, 0 if the words are public.
    words_wanted : int
    words_chosen : float or None
        Words that such a choice is asked for, and those that it should find; None without one.
        `n_features` is then what it should find.
    stages : list of (name, slots)
        How a window is spent; each document is in one stage.
    noise_multiplier : float
        Standard deviation of the noise in a sum, over what one unit can change it by.
    public_model : str or None
        Digest of the public model; if it fits the documents, all topics are shown.
    direction_noise : float
        u, see the module.
    word_noise : float
        d z / N: noise in the frequency of the mean word, over that frequency.
    perplexity_over_frequencies : float or None
        Perplexity of text over that of its true word frequencies, where a public model does not
        fit; None where it was not measured, as for the next two.
    topics_shown, planted_error : float or None
        What is expected of a window: topics of text, at most K; mean L1 error of planted topics
        (0 to 2), both where a public model does not fit. None where it was not measured: prefix
        mode, clipping at the worst case, power methods.
    least_records, least_epsilon : int, float or None
        The least window, and the least epsilon at this window, that would show all topics of
        text; None beyond 1e12 records or epsilon 8.
    """

    n_components: int
    n_features: int
    documents_per_snapshot: int
    windows: int
    words_records: int
    words_wanted: int
    words_chosen: float | None
    stages: list[tuple[str, int]]
    epsilon: float
    delta: float
    privacy_unit: str
    public_model: str | None
    noise_multiplier: float
    direction_noise: float
    word_noise: float
    perplexity_over_frequencies: float | None
    topics_shown: float | None
    planted_error: float | None
    least_records: int | None
    least_epsilon: float | None

    @classmethod
    def of(
        cls,
        settings: PrivateSettings,
        records: int,
        words_records: int = 0,
        delta: float | None = None,
        choice: WordSelection | None = None,
    ) -> Plan:
        """Return the plan of a run over some record slots; those of the words come first.

        `delta` is that of the whole run, where a choice of words takes a part of it.
        """
        at_least(1, records=records)
        wanted, found = settings.n_features, None
        if choice is not None:
            known = words_records / choice.threshold
            found = min(float(wanted), interpolate(known, WORDS_RECORDS, WORDS_CHOSEN))
            columns = max(round(found), settings.n_components)
            settings = replace(settings, n_features=columns)
        N, K, u = settings.documents_per_snapshot, settings.n_components, noise_of(settings)
        windows = max(0, records - words_records) // N
        known = is_measured(settings)
        sketched = settings.n_columns is not None
        errors = SKETCHED_ERROR if sketched else DENSE_ERROR
        return cls(
            n_components=K,
            n_features=settings.n_features,
            documents_per_snapshot=N,
            windows=windows if settings.snapshots is None else min(windows, settings.snapshots),
            words_records=words_records,
            words_wanted=wanted,
            words_chosen=found,
            stages=[(name, last - first) for name, first, last in settings.stage_slots()],
            epsilon=settings.epsilon,
            delta=delta or settings.delta,
            privacy_unit=settings.privacy_unit,
            public_model=settings.public_model,
            noise_multiplier=settings.noise_multiplier,
            direction_noise=u,
            word_noise=settings.word_noise,
            perplexity_over_frequencies=ratio_of(settings) if known else None,
            topics_shown=min(K, shown(settings)) if known else None,
            planted_error=interpolate(u * K, PLANTED_NOISE, errors) if known else None,
            least_records=_least_records(settings) if known else None,
            least_epsilon=_least_epsilon(settings) if known else None,
        )

    @property
    def warnings(self) -> list[str]:
        """Faults of the settings that should be mended before anything is spent."""
        found = []
        if not self.windows:
            found.append(
                "a private snapshot needs a whole window of record slots, after those of the "
                f"vocabulary, got windows=0 documents_per_snapshot={self.documents_per_snapshot} "
                f"vocabulary_documents={self.words_records}; read more, or take a smaller window"
            )
        if self.delta * self.documents_per_snapshot >= 1:
            found.append(
                "delta should be far below 1 / documents, else whole documents may be shown, got "
                f"delta={self.delta:g} documents_per_snapshot={self.documents_per_snapshot}"
            )
        chosen = self.words_chosen
        if chosen is not None and few_words(chosen, self.words_wanted, self.n_components):
            found.append(
                "a private choice of words should find half of those wanted and "
                f"{LEAST_WORDS_PER_TOPIC} for each topic, expected words={chosen:.0f} "
                f"wanted={self.words_wanted} documents={self.words_records} "
                f"topics={self.n_components}; choose from more records (vocabulary.documents), "
                "want fewer words (vocabulary.size), or bring a public list (--vocabulary)"
            )
        alone = self.public_model is None and self.topics_shown is not None
        if alone and self.about < self.n_components:
            remedies = [
                *([] if self.least_records is None else [f"a window of {self.least_records:,}"]),
                *([] if self.least_epsilon is None else [f"epsilon {self.least_epsilon:.2g}"]),
                "fewer words",
            ]
            found.append(
                f"noise should not hide topics, expected topics_shown={self.about:.0f} "
                f"topics={self.n_components}; all would need " + ", or ".join(remedies)
            )
        ratio = self.perplexity_over_frequencies
        if alone and ratio is not None and ratio > MOST_RATIO:
            times = self.word_noise / interpolate(MOST_RATIO, RATIO, WORD_NOISE)
            found.append(
                "topics should predict documents better than their word frequencies do, expected "
                f"perplexity={ratio:.2f} times theirs word_noise={self.word_noise:.3g}; take a "
                f"window of {times * self.documents_per_snapshot:,.0f} records, "
                f"{self.n_features / times:,.0f} words, a larger epsilon, or a public model "
                "(privacy.public_model)"
            )
        return found

    @property
    def lines(self) -> list[str]:
        """The plan in words, a line each."""
        words = f", after {self.words_records:,} for the words" if self.words_records else ""
        chosen = "" if self.words_chosen is None else f" chosen of {self.words_wanted:,}"
        return [
            f"{self.n_components} topics over {'about ' if chosen else ''}{self.n_features:,} words"
            f"{chosen}; epsilon "
            f"{self.epsilon:g}, delta {self.delta:g} for each {self.privacy_unit}",
            f"{plural(self.windows, 'window')} of {self.documents_per_snapshot:,} "
            f"record slots{words}; {SLOTS_ARE_PUBLIC} is not hidden",
            f"stages of a window: {self._cut}",
            f"noise in each sum: {self.noise_multiplier:.3g} times what one {self.privacy_unit} "
            "can change it by",
            self.expected,
        ]

    @property
    def _cut(self) -> str:
        stages = [f"{name} {slots:,}" for name, slots in self.stages]
        if self.public_model is None:
            return ", ".join(stages)
        first, public, *others = stages
        return f"{first}, {public} if the public model fits, else {', '.join(others)}"

    @property
    def about(self) -> float:
        """Topics of text that are shown, at least one: the word frequencies."""
        return max(1.0, self.topics_shown or 0.0)

    @property
    def expected(self) -> str:
        """One line: what the first window is expected to show."""
        if self.topics_shown is None:
            return "expected: not known, these settings were not measured"
        if self.words_chosen is not None and self.words_chosen < self.n_components:
            return f"expected: no topics, from about {plural(round(self.words_chosen), 'word')}"
        public = ""
        if self.public_model is not None:
            public = "all topics shown where the public model fits; where it does not, "
        ratio, predicted = self.perplexity_over_frequencies, ""
        if ratio is not None:
            predicted = f", with {ratio:.2f} times the perplexity of its word frequencies"
        return (
            f"expected: {public}about {self.about:.0f} of {self.n_components} topics of text shown"
            f"{predicted}; topics of equal shares with an L1 error of {self.planted_error:.2g}"
        )

    def __str__(self) -> str:
        return "\n".join([*self.lines, *(f"warning: {warning}" for warning in self.warnings)])

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON."""
        return {**asdict(self), "warnings": self.warnings}


def noise_of(settings: PrivateSettings) -> float:
    """Return u, the noise of a direction (`streamlda.private.plan`)."""
    z = settings.noise_in_documents(settings.noise_multiplier)
    return math.sqrt(settings.n_features) * z / settings.documents_per_snapshot


def shown(settings: PrivateSettings) -> float:
    """Return how many topics of text are shown, if as many are wanted, without a public model."""
    u = noise_of(settings)
    if not settings.refines:
        return (DENSE_SHOWN_TIMES_NOISE if settings.n_columns is None else SHOWN_TIMES_NOISE) / u
    beyond = max(1.0, COMMON_NOISE[0] / u) * min(1.0, COMMON_NOISE[-1] / u)
    return interpolate(u, COMMON_NOISE, COMMON_SHOWN) * beyond


def ratio_of(settings: PrivateSettings) -> float | None:
    """Return the perplexity to be expected over that of the true word frequencies."""
    if not settings.refines:
        return None
    return interpolate(settings.word_noise, WORD_NOISE, RATIO)


def is_measured(settings: PrivateSettings) -> bool:
    """Return whether what is expected was measured with such settings."""
    usual = settings.mode == "window" and settings.solver == WHITENED_TENSOR
    return usual and settings.clipping == "quantile"


def interpolate(x: float, known: tuple[float, ...], values: tuple[float, ...]) -> float:
    """Return the value at x, between those of the known points on a scale of logarithms."""
    return float(np.exp(np.interp(np.log(x), np.log(known), np.log(values))))


def _least_records(settings: PrivateSettings) -> int | None:
    def shows_all(records: int) -> bool:
        # The numbers of stages decide what sampling takes of delta: a window has its own.
        window = replace(settings, documents_per_snapshot=records)
        return shown(window) >= settings.n_components

    low, high = 99, 100
    while not shows_all(high):
        if high > MOST_RECORDS:
            return None
        low, high = high, 2 * high
    while high - low > max(1, low // 1000):
        middle = math.isqrt(low * high) if high > 2 * low else (low + high) // 2
        low, high = (low, middle) if shows_all(middle) else (middle, high)
    return high


def _least_epsilon(settings: PrivateSettings) -> float | None:
    """Return the least epsilon, in steps of a twentieth, that shows all topics."""

    def shows_all(epsilon: float) -> bool:
        return shown(replace(settings, epsilon=epsilon)) >= settings.n_components

    epsilon = settings.epsilon
    while shows_all(epsilon):
        if epsilon <= LEAST_EPSILON:
            return epsilon
        epsilon /= EPSILON_STEP
    while not shows_all(epsilon):
        epsilon *= EPSILON_STEP
        if epsilon > MOST_EPSILON:
            return None
    return epsilon
