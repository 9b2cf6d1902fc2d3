"""Finished models: which topics of two are one, what differs, and one model of several."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError, VocabularyError
from streamlda.model.matching import match_topics
from streamlda.model.over_time import Interval, Timeline
from streamlda.model.topic_model import TopicModel, load
from streamlda.privacy.statement import state_seeds
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary
from tests.cli.conftest import refused, run
from tests.service.planted import model, private, topics, words

WORDS = words(40)
CASED = Vocabulary.given(WORDS, TextAnalyzer(lowercase=False))

OF_ONE = dict.fromkeys(("n_components", "n_features", "places", "vocabulary_documents"), 3)


def model_of_tokens(table, names=WORDS, documents=10, **more):
    table = np.asarray(table, dtype=float)
    tokens = int(table.sum())
    return TopicModel(
        components=table / table.sum(axis=1, keepdims=True),
        alpha=more.pop("alpha", np.full(len(table), 0.5)),
        prevalence=table.sum(axis=1) / tokens,
        background=table.sum(axis=0) / tokens,
        vocabulary=Vocabulary.given(names),
        documents_seen=documents,
        tokens_seen=tokens,
        **more,
    )


def tables(seed, n=3):
    draw, rows = np.random.default_rng(seed), topics(n, 40, seed=seed)
    return np.array([draw.multinomial(5000 * (k + 1), p) for k, p in enumerate(rows)]) + 1


def names_of_topics(*names):
    seeds = [{"name": name, "columns": [k]} for k, name in enumerate(names)]
    return {"seed_topics": seeds}


def test_a_comparison_names_what_is_the_same_what_moved_and_what_is_alone(tmp_path):
    before = topics(4, 40)
    after = before[[2, 0, 1]].copy()
    weakest, strongest = after[0].argmin(), after[0].argmax()
    after[0, weakest], after[0, strongest] = 0.2, after[0, strongest] / 2
    after[0] /= after[0].sum()
    first, second = model(before), model(np.vstack([after, topics(1, 40, seed=5)]))
    found = first.compare(second)
    assert [(each.first, each.second) for each in found.matched] == [(2, 0), (1, 2), (0, 1)]
    assert found.only_first == found.only_second == (3,)
    assert found.matched[0].rose[0] == WORDS[weakest]
    assert found.matched[0].fell[0] == WORDS[strongest]
    affinity = np.sqrt(before[2] * after[0]).sum()
    assert found.matched[0].distance == pytest.approx(np.sqrt(1 - affinity))
    assert found.matched[1].distance == 0
    assert found.matched[1].rose == found.matched[1].fell == ()
    assert (found.common_words, found.common_share) == (40, 1.0)
    apart = found.matched[0].distance
    assert len(first.compare(second, max_distance=apart - 1e-9).matched) == 2
    assert len(first.compare(second, max_distance=apart + 1e-9).matched) == 3
    turned = model(second.components[:, ::-1], vocabulary=Vocabulary.given(WORDS[::-1]))
    assert first.compare(turned).matched[0].rose == found.matched[0].rose
    other = first.compare(model(topics(4, 64), vocabulary=None))
    assert (other.matched, other.common_words, other.common_share) == ((), 0, 0.0)
    for method in (first.compare, first.merge):
        with pytest.raises(InvalidSettingError, match="type='str'; read a file by"):
            method("a.model")
    with pytest.raises(InvalidSettingError, match=r"max_distance=1\.5"):
        first.compare(second, max_distance=1.5)

    first.save(tmp_path / "a")
    second.save(tmp_path / "b")
    given = ("compare", tmp_path / "a", tmp_path / "b")
    shown = json.loads(run(*given, "--json").stdout)
    assert shown == json.loads(json.dumps(first.compare(second).to_json()))
    table = run(*given, "--words", 3).stdout.splitlines()
    assert table[0] == "3 topics in both, 1 only in the first, 1 only in the second"
    assert table[4].split()[:3] == ["2", "0", f"{apart:.2f}"]
    assert f"+{WORDS[weakest]}" in table[5]
    assert [row.split()[0] for row in table[-2:]] == ["3", "3"]


@given(seed=st.integers(0, 10**6), shift=st.integers(1, 39), documents=st.integers(1, 1000))
def test_tokens_of_topics_that_are_one_add_up_and_all_others_are_kept(seed, shift, documents):
    mine, theirs = tables(seed), tables(seed)[[2, 0]] * 2
    theirs = np.vstack([theirs, tables(seed + 1, 1)])
    # The other model knows its words in another order, and some of them alone.
    names = words(40 + shift)[shift:]
    place = {word: i for i, word in enumerate(WORDS + names[-shift:])}
    columns = [place[word] for word in names]
    moved = np.zeros_like(theirs)
    known = [i for i, column in enumerate(columns) if column < 40]
    moved[:, known] = theirs[:, [columns[i] for i in known]]
    moved[:, -shift:] += 1
    first = model_of_tokens(mine)
    second = model_of_tokens(moved, names, documents)
    together = first.merge(second)
    pairs = {pair.second: pair.first for pair in match_topics(first, second)}
    rows = [pairs.get(j) for j in range(3)]
    new = iter(range(3, 6))
    rows = [next(new) if row is None else row for row in rows]
    whole = np.zeros((3 + sum(j not in pairs for j in range(3)), 40 + shift))
    whole[:3, :40] = mine
    for j, row in enumerate(rows):
        whole[row, columns] += moved[j]
    assert together.vocabulary.words == (*WORDS, *names[-shift:])
    np.testing.assert_allclose(
        together.components, whole / whole.sum(axis=1, keepdims=True), atol=1e-12
    )
    for j, row in enumerate(rows):
        if j not in pairs:
            assert together.components[row, columns].tolist() == second.components[j].tolist()
    np.testing.assert_allclose(together.prevalence, whole.sum(axis=1) / whole.sum(), atol=1e-12)
    background = np.zeros(40 + shift)
    background[:40] += 10 * first.background
    background[columns] += documents * second.background
    np.testing.assert_allclose(together.background, background / (10 + documents), atol=1e-12)
    assert together.documents_seen == 10 + documents
    assert together.tokens_seen == whole.sum()
    assert together.diagnostics["merged_models"][1]["topics"] == rows


def test_the_order_of_merging_does_not_matter_and_each_model_says_where_its_topics_went():
    a, b, c = (model_of_tokens(tables(1) + i, documents=i + 1) for i in range(3))
    c = model_of_tokens(np.vstack([tables(1)[::-1], tables(9, 1)]), documents=3)
    whole, steps = a.merge(b, c), a.merge(b).merge(c)
    for name in ("components", "alpha", "background", "prevalence"):
        np.testing.assert_allclose(getattr(whole, name), getattr(steps, name), rtol=1e-9)
    found = [(each["documents"], each["topics"]) for each in whole.diagnostics["merged_models"]]
    assert found == [(1, [0, 1, 2]), (2, [0, 1, 2]), (3, [2, 1, 0, 3])]


def test_what_is_not_known_of_all_documents_is_not_said(tmp_path):
    line = Timeline(unit="day", starts=[0, 86400], tokens=[[1, 0, 2], [3, 0, 0]], documents=[2, 1])
    first = model_of_tokens(tables(1), timeline=line, interval=Interval(documents=1, tokens=3))
    second = model_of_tokens(tables(1)[::-1] * [[4], [1], [1]], timeline=line)
    together = first.merge(second)
    assert together.interval is together.timeline is None
    assert first.merge(replace(second, prevalence=None)).prevalence is None
    # Without tokens, documents are what a model weighs.
    bare = first.merge(replace(second, tokens_seen=0, documents_seen=30))
    assert bare.tokens_seen == 0
    rows = bare.diagnostics["merged_models"][1]["topics"]
    np.testing.assert_allclose(
        bare.prevalence[rows], 0.25 * first.prevalence[rows] + 0.75 * second.prevalence
    )
    together.save(tmp_path / "m")
    assert load(tmp_path / "m").digest == together.digest


def test_what_has_no_true_merger_is_refused():
    for other, error, said in (
        ({}, InvalidSettingError, r"or one twice, got models=2 equal=\[0, 1\]; pass each"),
        ({"documents_seen": 0}, InvalidSettingError, "how many documents"),
        ({"vocabulary": None}, VocabularyError, "vocabularies=\\['given', 'none'\\]"),
        ({"vocabulary": CASED}, VocabularyError, "different analyzers"),
        ({"privacy": private()}, InvalidSettingError, "private=1 of=2; merge private models only"),
        ({"privacy": state_seeds()}, InvalidSettingError, "private=1 of=2; merge private"),
    ):
        first = model_of_tokens(tables(1))
        second = replace(first, **({"alpha": first.alpha * 2} if other else {}), **other)
        with pytest.raises(error, match=said):
            first.merge(second)


def test_the_command_merges_model_files(tmp_path):
    for name, table in (("a", tables(1)), ("b", np.vstack([tables(1), tables(9, 1)]))):
        model_of_tokens(table).save(tmp_path / name)
    files, output = (tmp_path / "a", tmp_path / "b"), ("-o", tmp_path / "c")
    said = run("merge", *files, *output).stderr
    assert said == (f"20 documents of 2 sources\n4 topics over 40 words\nmodel: {tmp_path / 'c'}\n")
    assert load(tmp_path / "c").n_components == 4
    for n, ledger in enumerate("xy"):
        model_of_tokens(tables(1) + n, privacy=private(ledger=ledger)).save(tmp_path / ledger)
    said = run("merge", tmp_path / "x", tmp_path / "y", *output).stderr
    assert said.startswith("20 record slots of 2 sources")
    (tmp_path / "folder").mkdir()
    for arguments, wanted, code in (
        ((*files, tmp_path / "folder", *output), "has no index", 65),
        ((*files, "-o", tmp_path / "a"), "would replace", 78),
        ((tmp_path / "a", *output), "fewer than two", 78),
        ((tmp_path / "a", tmp_path / "a", *output), f"equal=['{tmp_path / 'a'}', ", 78),
    ):
        assert wanted in refused("merge", *arguments, code=code)
