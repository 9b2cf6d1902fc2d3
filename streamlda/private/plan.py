"""Plan of a private run from its settings alone: stages, noise, and topics to expect.

No document is read. What is expected rests on two numbers of d words, a window of N record slots,
and noise of z documents' largest contributions in a sum: the noise of a direction
``u = sqrt(d) z / N``, and that of words, ``d z / N``. Formulas were fitted to runs on text
(`bench/private-choices.md`, `private-plan` in ``bench/``): topics shown are right within a factor
of two, the perplexity within a tenth, words chosen within a fifth. A public model that fits shows
all topics: whether it does, the first stage says.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from streamlda.engine.settings import WHITENED_TENSOR
from streamlda.errors import InvalidSettingError, at_least
from streamlda.guarantee.selection import WordSelection
from streamlda.model.table import plural
from streamlda.privacy.statement import SLOTS_ARE_PUBLIC
from streamlda.private.settings import LEAST_WINDOW, PrivateSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Forecast of a private run from public numbers; `releases.md` describes its values."""

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
    ) -> Self:
        """Return the plan of a run over some record slots; those of the words come first.

        `delta` is that of the whole run, where a choice of words takes a part of it.
        """
        at_least(1, records=records)
        wanted, found = settings.n_features, None
        if choice is not None:
            over = words_records / choice.threshold
            # Words that a choice finds by its records over its threshold.
            shown = 1 / (25 / over**2 + 0.25 / over + 1 / 12_000) if over else 0.0
            found = min(float(wanted), shown)
            columns = max(round(found), settings.n_components)
            settings = replace(settings, n_features=columns)
        N, K, u = settings.documents_per_snapshot, settings.n_components, noise_of(settings)
        windows = max(0, records - words_records) // N
        known = is_measured(settings)

        def shows_all(**changes: Any) -> bool:
            # The numbers of stages decide what sampling takes of delta: a window has its own.
            with suppress(InvalidSettingError):  # Too much of it.
                return expect_topics(replace(settings, **changes)) >= K
            return False

        fewest = lowest = None
        if known:
            windows_of = LEAST_WINDOW, 10**12
            fewest = least(lambda n: shows_all(documents_per_snapshot=math.ceil(n)), windows_of)
            # Beyond 8 a delta of 1e-6 does not cover what the sampler leaves open.
            lowest = least(lambda e: shows_all(epsilon=e), (1e-3, 8.0))
        own = ("epsilon", "privacy_unit", "public_model", "noise_multiplier", "word_noise")
        return cls(
            **{name: getattr(settings, name) for name in own},
            n_components=K,
            n_features=settings.n_features,
            documents_per_snapshot=N,
            windows=windows if settings.snapshots is None else min(windows, settings.snapshots),
            words_records=words_records,
            words_wanted=wanted,
            words_chosen=found,
            stages=[(name, last - first) for name, first, last in settings.stage_slots()],
            delta=delta or settings.delta,
            direction_noise=u,
            perplexity_over_frequencies=ratio_of(settings) if known else None,
            topics_shown=min(K, expect_topics(settings)) if known else None,
            least_records=None if fewest is None else math.ceil(fewest),
            least_epsilon=lowest,
        )

    @property
    def warnings(self) -> list[str]:
        """Faults of the settings that should be mended before anything is spent."""
        found = []
        if not self.windows:
            found.append(
                "the records do not fill a window of record slots after those of the "
                f"vocabulary, got windows=0 documents_per_snapshot={self.documents_per_snapshot} "
                f"vocabulary_documents={self.words_records}; read more, or take a smaller window"
            )
        if self.delta * self.documents_per_snapshot >= 1:
            found.append(
                "delta is not far below 1 / documents, so whole documents may be shown, got "
                f"delta={self.delta:g} documents_per_snapshot={self.documents_per_snapshot}"
            )
        chosen = self.words_chosen
        if chosen is not None and 2 * chosen < self.words_wanted:
            found.append(
                f"a private choice finds less than half of the words, expected words={chosen:.0f} "
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
                f"noise hides topics, expected topics_shown={self.about:.0f} "
                f"topics={self.n_components}; all would need " + ", or ".join(remedies)
            )
        ratio = self.perplexity_over_frequencies
        if alone and ratio is not None and ratio > 1:
            times = self.word_noise / noise_of_ratio(1.0)
            found.append(
                "topics predict documents no better than their word frequencies, expected "
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
            self.forecast,
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
    def forecast(self) -> str:
        """One line about the expected topics of the first window."""
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
            f"{predicted}"
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


def expect_topics(settings: PrivateSettings) -> float:
    """Return how many topics of text are shown, if as many are wanted, without a public model."""
    u = noise_of(settings)
    if settings.refines:
        return float(0.25 * u**-0.73)
    return (0.05 if settings.n_columns is None else 0.016) / u


def ratio_of(settings: PrivateSettings) -> float | None:
    """Return the perplexity to be expected over that of the true word frequencies."""
    return 0.52 + 0.42 * math.sqrt(settings.word_noise) if settings.refines else None


def noise_of_ratio(ratio: float) -> float:
    """Return the noise of words at which `ratio_of` expects a perplexity."""
    return ((ratio - 0.52) / 0.42) ** 2


def is_measured(settings: PrivateSettings) -> bool:
    """Return whether the forecast was measured with such settings."""
    usual = settings.mode == "window" and settings.solver == WHITENED_TENSOR
    return usual and settings.clipping == "quantile"


def least(shows_all: Callable[[float], bool], between: tuple[float, float]) -> float | None:
    """Return the least value that shows all topics, within a hundredth; None beyond the range."""
    low, high = between
    # A small delta refuses the largest epsilon.
    while not shows_all(high):
        high *= 0.95
        if high < low:
            return None
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if shows_all(middle) else (middle, high)
    return high
