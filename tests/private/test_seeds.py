"""Seeded topics under privacy: post-processing alone, in their order, honest about noise."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from streamlda.errors import InvalidSettingError
from streamlda.model.diagnostics import hellinger
from streamlda.model.topic_model import load
from streamlda.privacy.merged_statement import merge_statements
from streamlda.privacy.statement import check_statement, statement_lines
from streamlda.private.budget import ledger_terms
from streamlda.private.release_manager import config_hash
from streamlda.private.seeds import with_seeds
from streamlda.private.settings import PrivateSettings
from streamlda.private.snapshot_model import model_of, statement_of
from streamlda.simulate import PlantedLDA
from streamlda.spectral.seeds import WORD_SHARE, SeedTopic
from tests.engine.test_seeds import own_words
from tests.private.streams import assert_same_runs, run, settings_of, topics_of

PLANTED = PlantedLDA(4, 60, seed=3)

#: Planted topics that are seeded, in this order.
SEEDED = (2, 0, 3)
SEEDS = tuple(SeedTopic(f"planted {k}", own_words(PLANTED.components, k)) for k in SEEDED)

#: Three words, each all but certain of a topic, and one that is rare in all of them.
CLEAR = topics_of(
    np.array([[0.97, 0.01, 0.01, 0.01], [0.01, 0.97, 0.01, 0.01], [0.01, 0.01, 0.97, 0.01]]),
    np.array([0.6, 0.3, 0.1]),
    np.array([0.3, 0.3, 0.3, 0.1]),
)


def config_of(seeds=SEEDS, **options):
    size = {"n_components": 4, "n_features": 60, "documents_per_snapshot": 6000}
    return settings_of(**{**size, "seed_topics": seeds, **options})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"refinement_rounds": 1},
        {"solver": "simultaneous", "n_iterations": 3},
        {"mode": "prefix", "snapshots": 2},
    ],
    ids=str,
)
def test_they_cost_nothing_and_are_made_of_the_same_releases(options):
    documents = PLANTED.documents(6000)
    seeded, plain = (run(config_of(seeds, **options), documents) for seeds in (SEEDS, ()))
    # Bit by bit: stages, slots, sums, events and what is found, before it is published.
    assert_same_runs(seeded, plain)
    for one, other in zip(seeded.released, plain.released, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in other)
    config = config_of(**options)
    assert config.event == config_of((), **options).event
    assert ledger_terms(config) == ledger_terms(config_of((), **options))
    (snapshot, *_) = seeded.snapshots
    model = model_of(snapshot, config, {})
    assert model.names == [*(seed.name for seed in SEEDS), None]
    apart = hellinger(model.components, PLANTED.components)
    assert tuple(apart[:3].argmin(axis=1)) == SEEDED
    top = np.argsort(-model.components, axis=1)[:, :10]
    assert all(set(seed.columns) <= set(row) for seed, row in zip(SEEDS, top, strict=False))
    assert model.diagnostics["warnings"] == []
    np.testing.assert_allclose(model.components.sum(axis=1), 1.0)


def test_words_get_their_prior_and_the_others_stay_as_they_are():
    found, others = with_seeds(CLEAR, [SeedTopic("b", (1,)), SeedTopic("c", (2, 3))])
    assert others == []
    np.testing.assert_array_equal(found.alpha, [0.3, 0.1, 0.6])
    np.testing.assert_array_equal(found.components[2], CLEAR.components[0])
    prior = np.array([0, 0, WORD_SHARE, WORD_SHARE])
    expected = (CLEAR.components[2] + prior) / (1 + 2 * WORD_SHARE)
    np.testing.assert_allclose(found.components[1], expected, rtol=1e-12)
    assert with_seeds(CLEAR, ())[0] is CLEAR


def test_a_topic_that_is_not_about_its_words_keeps_its_number_and_is_named():
    assert CLEAR.components[:, 3].max() < 2 * CLEAR.background[3]
    seeds = [SeedTopic("rare", (3,)), SeedTopic("b", (1,))]
    found, others = with_seeds(CLEAR, seeds)
    assert others == ["rare"]
    assert any(np.array_equal(found.components[0], row) for row in CLEAR.components[[0, 2]])
    snapshot = run(config_of((SEEDS[0],)), PLANTED.documents(6000)).snapshots[0]
    few = np.argsort(snapshot.topics.components.max(axis=0) / snapshot.topics.background)[:1]
    config = config_of((SeedTopic("flat", (int(few[0]),)),))
    model = model_of(snapshot, config, {})
    assert model.names[0] == "flat"
    assert any(
        "others=1: flat, which documents or noise" in w for w in model.diagnostics["warnings"]
    )


def test_with_fewer_topics_than_seeds_one_is_divided():
    seeds = [SeedTopic(str(word), (word,)) for word in (0, 1, 2)]
    one = CLEAR.rows(np.array([1]))
    found, others = with_seeds(one, seeds)
    assert others == ["0", "2"]
    assert len(found.components) == 3
    assert found.alpha.sum() == pytest.approx(one.alpha.sum())
    full = replace(CLEAR, prevalence=np.array([0.6, 0.3, 0.1]))
    shares = with_seeds(full, [*seeds, SeedTopic("more", (1,))])[0].prevalence
    np.testing.assert_allclose(shares, [0.6, 0.15, 0.1, 0.15])


def test_settings_with_seeds_are_saved_and_compared():
    config = config_of()
    saved = json.loads(json.dumps(asdict(config)))
    assert PrivateSettings.of(saved) == config
    assert config.list_differences(saved) == []
    (said,) = config.list_differences(json.loads(json.dumps(asdict(config_of(SEEDS[:1])))))
    assert said.startswith("seed_topics=")
    assert config_hash(config, "public") != config_hash(config_of(()), "public")
    with pytest.raises(InvalidSettingError, match="fewer topics than seeded ones"):
        config_of(SEEDS, n_components=2)


def test_the_statement_and_the_file_say_so(tmp_path):
    (snapshot,) = run(config_of(), PLANTED.documents(6000)).snapshots
    given = {"epsilon": config_of().epsilon, "delta": 1e-4, "vocabulary": "public"}
    given |= {"secure": True, "ledger": None, "generation": None}
    said = statement_of(snapshot, config_of(), **given)
    assert said["seeds"] == "public"
    assert any(line.split() == ["seeds", "public", "words"] for line in statement_lines(said))
    plain = statement_of(snapshot, config_of(()), **given)
    assert "seeds" not in plain
    assert "seeds" in merge_statements([plain, said])
    with pytest.raises(InvalidSettingError, match="seeds='learned'"):
        check_statement({**said, "seeds": "learned"})
    model_of(snapshot, config_of(), said).save(tmp_path / "model")
    assert load(tmp_path / "model").seeds == tuple(seed.columns for seed in SEEDS)
