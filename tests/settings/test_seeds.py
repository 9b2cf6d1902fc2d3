"""Seed words of settings: lines and files; what is unknown."""

import pytest

from streamlda.engine.settings import EngineSettings
from streamlda.errors import InvalidSettingError
from streamlda.settings.build import SeedWords, read_seeds, seed_by_words
from streamlda.settings.load import settings_of_parameters
from streamlda.text.vocabulary import Vocabulary

SPACE = SeedWords("space", ("orbit", "launch"))
ASKED = EngineSettings(n_components=2, n_features=5)


@pytest.mark.parametrize(
    "given",
    [
        ["space: orbit  launch orbit", "İce: été"],
        "space: orbit launch; İce: été",
        {"space": ["orbit", "launch"], "İce": ("été",)},
    ],
)
def test_seeds_come_as_lines_or_a_mapping(given):
    settings = settings_of_parameters({"n_components": 3, "seed_topics": given})
    assert read_seeds(settings.topics.seeds, 3) == [SPACE, SeedWords("İce", ("été",))]


def test_seeds_that_are_none_are_refused():
    for given, message in (
        (["space:"], "is not a name, a colon and words"),
        (["none"], "got seed_topic='none'"),
        (["a: x", "a: y"], "share a name"),
        (["a: x", "b: y", "c: z"], "fewer topics than seeded ones, got topics=2 seeded=3"),
    ):
        with pytest.raises(InvalidSettingError, match=message):
            read_seeds(given, 2)


def test_words_are_read_as_in_texts_and_unknown_ones_are_named():
    said, words = [], Vocabulary.given(["cold", "launch", "orbit"])

    def columns_of(seed):
        found = seed_by_words(ASKED, [seed], words, said.append).seed_topics
        return [seed.columns for seed in found]

    assert columns_of(SeedWords("space", ("Orbit", "nasa", "launch"))) == [(2, 1)]
    assert "got unknown=1: nasa;" in said.pop()
    assert columns_of(SPACE) == [(2, 1)]
    assert not said
    with pytest.raises(InvalidSettingError, match="topic='ice' words=2 unknown='snow, nasa'"):
        columns_of(SeedWords("ice", ("snow", "nasa")))


def test_what_seeds_do_not_go_with_is_refused():
    for more, message in (
        ({"epsilon": 1.0, "delta": 1e-6, "solver": "simultaneous"}, "whitened-tensor"),
        ({"seed_topics": {"a": "orbit"}}, "or a list of words for each name"),
    ):
        with pytest.raises(InvalidSettingError, match=message):
            settings_of_parameters({"seed_topics": ["a: b"], **more})
