"""A topic model refuses what is none, and its file brings back exactly that model."""

import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.container import read_arrays, write_arrays
from streamlda.errors import InvalidSettingError, ModelFileError, NewerFormatError, VocabularyError
from streamlda.model.model_file import FORMAT
from streamlda.model.over_time import Interval, Timeline
from streamlda.model.topic_model import TopicModel, load
from streamlda.model.topics import current_versions
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary
from tests.texts import LETTERS

DATA = Path(__file__).parents[1] / "data"
GOLDEN = DATA / "topic-model-v1.safetensors"
GOLDEN_2 = DATA / "topic-model-v2.safetensors"
DAY = "2026-01-02T00:00:00+00:00"
WORDS = ("apple", "bread", "größe", "日本")
#: As version 0.1 found words.
ANALYZER = TextAnalyzer(token_pattern=LETTERS, normalize=False, clean=())
METADATA = ("vocabulary", "settings", "diagnostics", "versions", "privacy", "created")
COUNTS = ("documents_seen", "tokens_seen")


def make_model(**changes):
    values = {
        "components": np.array([[0.5, 0.25, 0.25, 0.0], [0.0, 0.125, 0.375, 0.5]]),
        "alpha": np.array([0.75, 0.25]),
        "background": np.array([0.375, 0.25, 0.25, 0.125]),
        "vocabulary": Vocabulary.given(WORDS, ANALYZER),
        "settings": {"n_components": 2, "whitening": "streaming"},
        "diagnostics": {"eigenvalues": [0.5, 0.25], "condition_number": 2.0, "warnings": []},
        "versions": {"streamlda": "0.1.0", "numpy": "2.4.6", "python": "3.11.7"},
        "documents_seen": 12,
        "tokens_seen": 345,
        "created": "2026-01-02T03:04:05+00:00",
    }
    return TopicModel(**{**values, **changes})


def make_measured_model():
    return make_model(
        prevalence=np.array([0.1, 0.9]),
        interval=Interval(documents=3, tokens=30, prevalence=(0.25, 0.75), start=DAY, end=DAY),
        timeline=Timeline(
            unit="day", starts=[0, 86400], tokens=[[1.5, 2], [0, 3]], documents=[2, 1], late=1
        ),
        representative_documents=[[{"id": "7", "proportion": 0.5, "text": "größe"}], []],
    )


def assert_same(found, wanted):
    assert found.shares == wanted.shares
    assert found.interval == wanted.interval
    assert found.representative_documents == wanted.representative_documents
    assert (found.timeline is None) == (wanted.timeline is None)
    if wanted.timeline is not None:
        assert found.timeline.to_json() == wanted.timeline.to_json()
        np.testing.assert_array_equal(found.timeline.tokens, wanted.timeline.tokens)
    for name in ("components", "alpha", "background"):
        assert getattr(found, name).tobytes() == getattr(wanted, name).tobytes()
        assert getattr(found, name).shape == getattr(wanted, name).shape
    for name in METADATA + COUNTS:
        assert getattr(found, name) == getattr(wanted, name)


ONE, ONE_WORD = np.ones(1), Vocabulary.given(["x"])
MODELS = {
    "words": make_model(),
    "hashed": make_model(vocabulary=Vocabulary.hashed(2)),
    "none": make_model(vocabulary=None),
    "measured": make_measured_model(),
    "one": TopicModel(components=ONE[None], alpha=ONE, background=ONE, vocabulary=ONE_WORD),
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_saved_model_comes_back_the_same(tmp_path, kind):
    model = MODELS[kind]
    model.save(tmp_path / "model")
    found = load(tmp_path / "model")
    assert_same(found, model)
    found.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_the_committed_file_of_version_1_stays_readable():
    model = load(GOLDEN)
    assert_same(model, make_model(privacy={"statement": "none"}))
    assert model.shares == [None, None]
    counts = model.vocabulary.encode(["Größe apple, apple"]).batch.to_csr().toarray()
    assert counts.tolist() == [[2, 0, 1, 0]]


def test_the_committed_file_of_version_2_stays_readable_and_is_written_so_today(tmp_path):
    assert_same(load(GOLDEN_2), make_measured_model())
    make_measured_model().save(tmp_path / "model")
    assert (tmp_path / "model").read_bytes() == GOLDEN_2.read_bytes()


def test_top_words_are_the_most_probable_with_ties_by_id():
    assert make_model().top_words(3) == [
        [("apple", 0.5), ("bread", 0.25), ("größe", 0.25)],
        [("日本", 0.5), ("größe", 0.375), ("bread", 0.125)],
    ]
    assert [len(topic) for topic in make_model().top_words(99)] == [4, 4]
    assert "n_components=2, n_features=4" in repr(make_model())
    with pytest.raises(InvalidSettingError, match="n=0"):
        make_model().top_words(0)
    assert make_model(vocabulary=None).top_words(1) == [[("0", 0.5)], [("3", 0.5)]]
    hashed = make_model(vocabulary=Vocabulary.hashed(2))
    assert hashed.top_words(1) == [[("h0", 0.5)], [("h3", 0.5)]]


def test_arrays_are_copied_if_others_can_write_them_and_shared_if_not():
    components = np.array([[0.5, 0.5]])
    model = TopicModel(components=components, alpha=np.ones(1), background=np.full(2, 0.5))
    assert np.shares_memory(replace(model).components, model.components)
    components[0, 0] = 9.0
    assert model.components[0, 0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        model.components[0, 0] = 9.0
    with pytest.raises(FrozenInstanceError):
        model.documents_seen = 3
    assert model.versions == current_versions()
    assert set(model.versions) >= {"python", "streamlda", "numpy", "numba"}
    assert model.created.endswith("+00:00")
    assert model.privacy == {"statement": "not private"}


INVALID = [
    ({"components": np.ones((2, 4))}, "no probabilities.*array='components'.*largest_error=3"),
    ({"components": np.array([[2, -1, 0, 0], [0, 0, 0, 1.0]])}, "array='components' min=-1"),
    ({"components": np.full((2, 4), np.nan)}, "no probabilities.*min=nan"),
    ({"alpha": np.ones(3)}, r"alpha=\(3,\)"),
    ({"alpha": np.array([1.0, 0.0])}, "alpha must be a vector of finite numbers > 0.*min=0"),
    ({"vocabulary": Vocabulary.given(["a"])}, "words=1 columns=4"),
    ({"vocabulary": Vocabulary.given(["a", "b", "c", "d\n"])}, "line feed, got word_id=3"),
    ({"vocabulary": Vocabulary.given(["a", "b", "c", "\ud800"])}, "a lone surrogate"),
    ({"settings": {"a": float("inf")}}, "not plain JSON"),
    ({"documents_seen": -1}, "documents_seen must be a whole number >= 0"),
    ({"created": "yesterday"}, "created must be a time in ISO 8601"),
    ({"created": "2026-01-02T03:04:05+02:00"}, "in UTC, got created="),
]


@pytest.mark.parametrize(("changes", "message"), INVALID)
def test_what_is_no_model_is_refused(changes, message):
    with pytest.raises((InvalidSettingError, VocabularyError), match=message):
        make_model(**changes)


#: Changes of the arrays (a) and the metadata (m) of a whole file.
FORGED = {
    "no alpha": lambda a, m: a.pop("alpha"),
    "extra array": lambda a, m: a.update(more=np.ones(1)),
    "float32": lambda a, m: a.update(alpha=np.ones(2, np.float32)),
    "no words": lambda a, m: a.pop("words"),
    "other words": lambda a, m: a.update(words=np.full(1, 97, np.uint8)),
    "words not UTF-8": lambda a, m: a.update(words=np.full(9, 255, np.uint8)),
    "words without vocabulary": lambda a, m: m.update(vocabulary=None),
    "vocabulary changed": lambda a, m: m["vocabulary"]["analyzer"].update(lowercase=False),
    "no created": lambda a, m: m.pop("created"),
    "extra metadata": lambda a, m: m.update(more=1),
}


def read_golden():
    file = read_arrays(GOLDEN, FORMAT, 1)
    return file.arrays, file.metadata


@pytest.mark.parametrize("case", FORGED)
def test_a_whole_file_without_a_model_in_it_is_refused(tmp_path, case):
    arrays, metadata = read_golden()
    write_arrays(tmp_path / "model", FORMAT, 1, arrays, metadata)
    assert_same(load(tmp_path / "model"), make_model(privacy={"statement": "none"}))
    FORGED[case](arrays, metadata)
    write_arrays(tmp_path / "model", FORMAT, 1, arrays, metadata)
    with pytest.raises(ModelFileError, match="holds no valid model, got why="):
        load(tmp_path / "model")


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch") / "model"


@pytest.mark.fuzz
@given(data=st.data())
def test_forged_metadata_never_crash_the_reader(scratch, data):
    arrays, metadata = read_golden()
    inside = data.draw(st.sampled_from(["", "vocabulary", "analyzer"]))
    place = metadata if not inside else metadata["vocabulary"]
    place = place["analyzer"] if inside == "analyzer" else place
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(plain)
    write_arrays(scratch, FORMAT, 1, arrays, metadata)
    try:
        model = load(scratch)
    except ModelFileError:
        return
    for name in set(metadata) - {"vocabulary"}:
        found, wanted = getattr(model, name), metadata[name]
        assert json.dumps(found, sort_keys=True) == json.dumps(wanted, sort_keys=True)
    wanted = None if metadata["vocabulary"] is None else make_model().vocabulary
    assert model.vocabulary == wanted


def test_errors_of_files_are_told_apart(tmp_path):
    write_arrays(tmp_path / "model", FORMAT, 3, {}, {"all": "different"})
    with pytest.raises(NewerFormatError, match="format_version=3 readable=2"):
        load(tmp_path / "model")
    (tmp_path / "model").write_bytes(GOLDEN.read_bytes()[:-1])
    with pytest.raises(ModelFileError, match=r"is damaged.*path='.*model'; restore"):
        load(tmp_path / "model")


def test_the_page_names_all_there_is_in_a_file(tmp_path):
    make_measured_model().save(tmp_path / "model")
    arrays, metadata, _ = read_arrays(tmp_path / "model", FORMAT, 2)
    page = Path(__file__).parents[2] / "streamlda/docs/reference-model-file.md"
    text = page.read_text("utf-8")
    assert [name for name in [*arrays, *metadata] if f"`{name}`" not in text] == []
