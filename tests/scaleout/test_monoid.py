"""Sums of shards for other engines: any tree of them is the whole, and none counts twice."""

import pickle
import random

import numpy as np
import pytest

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InsufficientDataError, InvalidSettingError
from streamlda.model.evaluation import matched_l1_error
from streamlda.scaleout import better_projection, merge, projection_of, sums_of, topics
from streamlda.simulate import PlantedLDA
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary

WORDS = Vocabulary.given([f"w{i:05}" for i in range(60)], TextAnalyzer(token_pattern=r"w\d+"))
SETTINGS = EngineSettings(n_components=3, n_features=1, oversampling=8)


@pytest.fixture(scope="module")
def planted():
    return PlantedLDA(3, 60, seed=4, mean_length=30, topic_concentration=0.1)


@pytest.fixture(scope="module")
def texts(planted):
    return planted.texts(3000)


@pytest.fixture(scope="module")
def projection(texts):
    return projection_of(texts[::3], SETTINGS, WORDS)


@pytest.fixture(scope="module")
def parts(texts, projection):
    sent = pickle.loads(pickle.dumps(projection))
    return [sums_of(iter(texts[n::5]), sent, shard=f"part {n}") for n in range(5)]


def test_any_tree_of_sums_is_that_of_all_documents(parts, texts, projection):
    one = Engine(projection.settings, shared_projection=projection.whitening)
    one.add(WORDS.encode(texts).batch)
    wanted, draw = one.state()[0], random.Random(1)
    for _ in range(5):
        left = [pickle.loads(pickle.dumps(part)) for part in parts]
        while len(left) > 1:
            taken = [left.pop(draw.randrange(len(left))) for _ in range(min(3, len(left)))]
            left.append(merge(*taken))
        found = left[0].engine(projection).state()[0]
        for name in ("word_totals", "pair_cross", "triple_cross"):
            difference = np.abs(found[f"current.{name}"] - wanted[f"current.{name}"]).max()
            assert difference < 1e-10 * np.abs(wanted[f"current.{name}"]).max()
        assert left[0].documents == one.snapshot().documents_seen


def test_two_rounds_give_the_planted_topics(parts, texts, projection, planted):
    one = topics(merge(*parts), projection)
    assert one.vocabulary == WORDS
    better = better_projection(merge(*parts), projection)
    again = [sums_of(texts[n::2], better, shard=f"half {n}") for n in range(2)]
    two = topics(merge(*again), better)
    for model in (one, two):
        assert matched_l1_error(planted.components, model.components).mean < 0.25
    np.testing.assert_array_equal(two.components, topics(merge(*again), better).components)


def test_what_does_not_belong_together_is_not_merged(parts, texts, projection):
    again = sums_of(texts[0::5], projection, shard="part 0")
    np.testing.assert_array_equal(again.arrays["pair_cross"], parts[0].arrays["pair_cross"])
    with pytest.raises(InvalidSettingError, match=r"each shard must be summed once.*part 0"):
        merge(merge(*parts[:2]), again)
    other = projection_of(texts[1::3], SETTINGS, WORDS)
    with pytest.raises(InvalidSettingError, match="share projection and words"):
        merge(parts[0], sums_of(texts[1::5], other, shard="part 1"))
    with pytest.raises(InsufficientDataError, match="documents=1"):
        projection_of(["no known word"], SETTINGS, WORDS)
