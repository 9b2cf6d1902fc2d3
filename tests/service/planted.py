"""Models for the tests of what is published: made up, but of the shape that real ones have."""

import numpy as np

from streamlda.guarantee.accounting import noise_multiplier
from streamlda.model.over_time import Interval, Timeline
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.statement import ReleasedStage, private_statement
from streamlda.service.status import OUTCOMES
from streamlda.text.vocabulary import Vocabulary


def outcomes(**records):
    return dict.fromkeys(OUTCOMES, 0) | records


def budget(spent, left, total, delta):
    names = ("epsilon_spent", "epsilon_left", "epsilon_total", "delta")
    return dict(zip(names, (spent, left, total, delta), strict=True))


def topics(n_components=4, n_features=60, *, seed=1, concentration=0.1):
    draw = np.random.default_rng(seed)
    return draw.dirichlet(np.full(n_features, concentration), n_components)


def model(components, *, alpha=None, vocabulary="words", **more):
    components = np.asarray(components, dtype=float)
    alpha = np.arange(1.0, len(components) + 1) if alpha is None else np.asarray(alpha)
    if vocabulary == "words":
        vocabulary = Vocabulary.given(words(components.shape[1]))
    return TopicModel(
        components=components,
        alpha=alpha,
        prevalence=np.asarray(alpha) / np.sum(alpha),
        background=alpha @ components / alpha.sum(),
        vocabulary=vocabulary,
        created="2026-01-02T03:04:05+00:00",
        **more,
    )


def over_time():
    return {
        "interval": Interval(
            documents=7,
            tokens=100,
            prevalence=(0.25, 0.25, 0.5, 0),
            start="2019-03-01T00:00:00+00:00",
            end="2019-03-02T12:00:00.5+00:00",
        ),
        "timeline": Timeline(
            unit="day",
            starts=[0, 86400],
            tokens=[[1.0, 0, 0, 3], [0, 0, 0, 0]],
            documents=[2, 0],
            undated=5,
            late=1,
        ),
        "diagnostics": {"topic_npmi": [0.5, -0.25, 0.0, 0.125]},
    }


def private(first=0, last=99, ledger="a", **more):
    """Return the statement of a fit over these record slots, with epsilon 1 and delta 1e-6."""
    epsilon, delta = 1.0, 1e-6
    stage = ReleasedStage("window", first, last, noise_multiplier(epsilon, delta))
    terms = {"clip_bounds": {"pair": (0.03, "fixed")}, "vocabulary": "public", "stages": [stage]}
    return private_statement(
        epsilon=epsilon, delta=delta, secure=True, ledger=ledger, **{**terms, **more}
    )


def words(n):
    """Return words of two letters or more, which the default way of splitting texts yields."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [f"w{letters[i // 26 % 26]}{letters[i % 26]}" for i in range(n)]


def shifted(components, amount, *, seed=2):
    other = topics(*components.shape, seed=seed, concentration=1.0)
    return (1 - amount) * components + amount * other
