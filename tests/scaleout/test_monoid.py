"""Sums of shards for other engines: any tree of them is the whole, and none counts twice."""

import pickle
import random
from dataclasses import replace

import numpy as np
import pytest

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.model.evaluation import DocumentCompletion, matched_l1_error
from streamlda.refinement.refine import refined
from streamlda.scaleout import (
    better_projection,
    merge,
    projection_of,
    refinement_of,
    sums_of,
    topics,
)
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


@pytest.fixture(scope="module")
def halves(texts):
    return {f"half {n}": texts[n:2800:2] for n in range(2)}


@pytest.fixture(scope="module")
def summed(halves):
    """Sums by a false alpha_0, so that a refinement has something to gain."""
    projection = projection_of(halves["half 0"], replace(SETTINGS, alpha_0=0.1), WORDS)
    found = merge(*(sums_of(own, projection, shard=name) for name, own in halves.items()))
    return found, projection, refinement_of(found, projection, halves["half 0"])


def after_rounds(refinement, halves, most=99):
    while refinement.rounds_left and most:
        sent = pickle.loads(pickle.dumps(refinement))
        parts = [sums_of(iter(own), sent, shard=name) for name, own in halves.items()]
        refinement, most = refinement.after(merge(*parts[::-1])), most - 1
    return refinement


def test_refined_topics_are_as_good_as_those_of_one_process(texts, halves, summed, planted):
    """Held-out perplexity within 1 % of passes in one process, from the same start."""
    sums, projection, refinement = summed
    aside, held_out = texts[2800:], WORDS.encode(planted.texts(1000)).batch
    start = topics(sums, projection)
    model = topics(sums, projection, after_rounds(refinement, halves), aside)
    done = model.diagnostics["refinement"]
    assert model.diagnostics["refinement_choice"]["kept"] == "refinement"
    assert (done["documents"], done["lanes"]) == (model.documents_seen + 200, 2)
    assert list(model.prevalence) == sorted(model.prevalence, reverse=True)
    batch = WORDS.encode([text for own in halves.values() for text in own]).batch
    one = refined(start, batch, passes=refinement.schedule.passes)

    def perplexity(of):
        completion = DocumentCompletion(of.components, of.alpha, start.background)
        completion.add(held_out)
        return completion.result().perplexity

    assert perplexity(model) < 1.01 * perplexity(one) < 1.01 * perplexity(start)


def test_a_refinement_that_predicts_worse_is_not_kept(texts, halves, projection):
    """Of documents that follow the model, with the true alpha_0."""
    sums = merge(*(sums_of(own, projection, shard=name) for name, own in halves.items()))
    ended = after_rounds(refinement_of(sums, projection, texts), halves)
    model, start = topics(sums, projection, ended, texts[2800:]), topics(sums, projection)
    assert model.diagnostics["refinement_choice"]["kept"] == "start"
    np.testing.assert_array_equal(model.components, start.components)


def test_rounds_that_do_not_belong_together_are_not_merged(texts, halves, summed):
    sums, projection, refinement = summed
    first = [sums_of(own, refinement, shard=name) for name, own in halves.items()]
    later = after_rounds(refinement, halves, most=1)
    second = [sums_of(own, later, shard=name) for name, own in halves.items()]
    with pytest.raises(InvalidSettingError, match=r"each shard must be summed once.*half 0"):
        merge(*first, first[0])
    with pytest.raises(InvalidSettingError, match="begin from the same topics"):
        merge(first[0], second[1])
    for wrong in (merge(*first), second[0]):
        with pytest.raises(InvalidDocumentsError, match="each part must be counted once"):
            later.after(wrong)
    with pytest.raises(InvalidSettingError, match="shards that were summed"):
        sums_of(texts, refinement, shard="another")
    with pytest.raises(InvalidDocumentsError, match="a document"):
        sums_of(texts[:20], refinement, shard="half 0")
    with pytest.raises(InvalidSettingError, match="rounds_left"):
        topics(sums, projection, later, texts[2800:])
    small = merge(sums, sums_of(texts[2800:2830], projection, shard="small"))
    with pytest.raises(InsufficientDataError, match="fewer shards"):
        refinement_of(small, projection, texts)


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
