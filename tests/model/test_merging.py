"""Finished models: which topics of two are one, what differs, and one model of several."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InvalidSettingError, VocabularyError
from streamlda.model.evaluation import matched_l1_error
from streamlda.model.matching import matched_topics
from streamlda.model.over_time import Interval, Timeline
from streamlda.model.topic_model import TopicModel, load
from streamlda.privacy.accounting import noise_multiplier
from streamlda.privacy.merged_statement import merged_statement
from streamlda.privacy.statement import (
    NOT_PRIVATE,
    SEEDED,
    ReleasedStage,
    check_statement,
    private_statement,
    seeded,
    statement_lines,
)
from streamlda.simulate import PlantedLDA
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary
from tests.cli.conftest import refused, run
from tests.service.planted import model, shifted, topics, words

WORDS = words(40)

#: Settings that say how large one fit was.
OF_ONE = dict.fromkeys(("n_components", "n_features", "places", "vocabulary_documents"), 3)


def counted(table, names=WORDS, documents=10, **more):
    """Return the model of tokens by topic and word."""
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


def tables(seed, n=3, n_words=40, tokens=5000):
    draw = np.random.default_rng(seed)
    return (
        np.array(
            [
                draw.multinomial(tokens * (k + 1), p)
                for k, p in enumerate(topics(n, n_words, seed=seed))
            ]
        )
        + 1
    )


def names_of_topics(*names):
    """Return settings with seeds of these names, each of one column."""
    seeds = [{"name": name, "columns": [k]} for k, name in enumerate(names)]
    return {"seed_topics": seeds}


def private(first=0, last=99, ledger="a", **more):
    epsilon, delta = 1.0, 1e-6
    stage = ReleasedStage("window", first, last, noise_multiplier(epsilon, delta))
    terms = {"clip_bounds": {"pair": (0.03, "fixed")}, "vocabulary": "public", "stages": [stage]}
    return private_statement(
        epsilon=epsilon, delta=delta, secure=True, ledger=ledger, **{**terms, **more}
    )


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
    with pytest.raises(VocabularyError, match="common_words=0"):
        first.compare(model(topics(4, 64), vocabulary=None))
    for method in (first.compare, first.merge):
        with pytest.raises(InvalidSettingError, match="type='str'; read a file by"):
            method("a.model")
    with pytest.raises(InvalidSettingError, match=r"max_distance=1\.5"):
        first.compare(second, max_distance=1.5)

    for name, each in (("a", first), ("b", second), ("c", model(topics(4, 64), vocabulary=None))):
        each.save(tmp_path / name)
    said = refused("compare", tmp_path / "a", tmp_path / "c")
    assert f"first='{tmp_path / 'a'}' second='{tmp_path / 'c'}'" in said
    assert said.endswith("; compare models that were fitted with one vocabulary\n")
    shown = json.loads(run("compare", tmp_path / "a", tmp_path / "b", "--json").stdout)
    assert [(each["first"], each["second"]) for each in shown["matched"]] == [
        (2, 0), (1, 2), (0, 1)]  # fmt: skip
    assert shown["matched"][0]["prevalence"] == [first.shares[2], second.shares[0]]
    assert shown["only_second"][0]["words"] == [word for word, _ in second.top_words()[3]]
    table = run("compare", tmp_path / "a", tmp_path / "b", "--words", 3).stdout.splitlines()
    assert table[0] == "3 topics in both, 1 only in the first, 1 only in the second"
    assert table[4].split()[:3] == ["2", "0", f"{apart:.2f}"]
    assert f"+{WORDS[weakest]}" in table[5]
    assert [row.split()[0] for row in table[-2:]] == ["3", "3"]


def test_topics_of_one_name_are_one_and_of_two_names_are_not():
    rows = topics(3, 40)
    first = model(rows, settings=names_of_topics("space", "law"))
    same = model(rows[[1, 0, 2]], settings=names_of_topics("space", "law"))
    pairs = {(pair.first, pair.second) for pair in matched_topics(first, same)}
    assert pairs == {(0, 0), (1, 1), (2, 2)}
    other = model(rows, settings=names_of_topics("cars"))
    assert {pair[:2] for pair in matched_topics(first, other)} == {(1, 1), (2, 2)}


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
    first = counted(mine)
    second = counted(moved, names, documents)
    together = first.merge(second)
    pairs = {pair.second: pair.first for pair in matched_topics(first, second)}
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


def test_the_topics_of_two_halves_are_nearer_to_the_truth_together():
    planted = PlantedLDA(5, 100, seed=2, topic_concentration=0.1)
    halves = []
    for seed in range(2):
        engine = Engine.of_rounds(EngineSettings(n_components=5, n_features=100, seed=seed))
        engine.add(planted.documents(1000))
        halves.append(engine.snapshot())
    together = halves[0].merge(halves[1])
    assert together.n_components == 5
    errors = [
        matched_l1_error(planted.components, each.components).mean for each in (*halves, together)
    ]
    # The mean of two cannot be farther away than they are on average; errors partly cancel.
    assert errors[2] < 0.9 * np.mean(errors[:2])


@given(
    sizes=st.lists(st.integers(1, 10**6), min_size=2, max_size=2),
    sums=st.lists(st.floats(0.05, 50), min_size=2, max_size=2),
    seed=st.integers(0, 1000),
)
def test_the_prior_is_that_of_a_mixture_of_documents(sizes, sums, seed):
    table, draw = tables(1), np.random.default_rng(seed)
    priors = [total * draw.dirichlet(np.ones(3)) + 1e-3 for total in sums]
    parts = [
        counted(table + i, documents=n, alpha=alpha)
        for i, (n, alpha) in enumerate(zip(sizes, priors, strict=True))
    ]
    alpha = parts[0].merge(parts[1]).alpha
    assert len(alpha) == 3

    def moments(a):
        total = a.sum()
        return np.append(a / total, a @ (a + 1) / (total * (total + 1)))

    wanted = np.average([moments(a) for a in priors], axis=0, weights=sizes)
    np.testing.assert_allclose(moments(alpha), wanted, rtol=1e-6)


def test_the_order_of_merging_does_not_matter_and_each_model_says_where_its_topics_went():
    a, b, c = (counted(tables(1) + i, documents=i + 1) for i in range(3))
    c = counted(np.vstack([tables(1)[::-1], tables(9, 1)]), documents=3)
    whole, steps = a.merge(b, c), a.merge(b).merge(c)
    for name in ("components", "alpha", "background", "prevalence"):
        np.testing.assert_allclose(getattr(whole, name), getattr(steps, name), rtol=1e-9)
    found = [each["topics"] for each in whole.diagnostics["merged_models"]]
    assert found == [[0, 1, 2], [0, 1, 2], [2, 1, 0, 3]]
    assert [each["documents"] for each in whole.diagnostics["merged_models"]] == [1, 2, 3]


def test_names_stand_first_with_the_seeds_of_all():
    mine, theirs = tables(1), np.vstack([tables(7, 1), tables(1)[:1]])
    seeds = {"seed_topics": [{"name": "law", "columns": [3]}]}
    words_of_other = WORDS[::-1]
    first = counted(mine, settings=seeds | {"solver": "x", "seed": 1} | OF_ONE)
    second = counted(
        theirs[:, ::-1], words_of_other,
        settings={"seed_topics": [{"name": "cars", "columns": [0, 5]}], "solver": "x", "seed": 2}
        | OF_ONE,
    )  # fmt: skip
    together = first.merge(second)
    assert together.names == ["law", "cars", None, None]
    assert together.seeds == ((3,), (39, 34))
    assert together.settings["solver"] == "x"
    assert not {"seed", *OF_ONE} & set(together.settings)
    places = [each["topics"] for each in together.diagnostics["merged_models"]]
    assert places == [[0, 2, 3], [1, 0]]


def test_what_is_not_known_of_all_documents_is_not_said(tmp_path):
    line = Timeline(unit="day", starts=[0, 86400], tokens=[[1, 0, 2], [3, 0, 0]], documents=[2, 1])
    later = Timeline(
        unit="day", starts=[86400, 2 * 86400], tokens=[[0, 1, 1], [5, 0, 0]], documents=[4, 5],
        undated=2, late=1,
    )  # fmt: skip
    first = counted(tables(1), timeline=line, interval=Interval(documents=1, tokens=3))
    second = counted(tables(1)[::-1] * [[4], [1], [1]], timeline=later)
    together = first.merge(second)
    assert together.interval is None
    assert together.timeline.starts.tolist() == [0, 86400, 2 * 86400]
    assert together.timeline.tokens.tolist() == [[1, 0, 2], [4, 1, 0], [0, 0, 5]]
    assert together.timeline.documents.tolist() == [2, 5, 5]
    assert (together.timeline.undated, together.timeline.late) == (2, 1)
    assert first.merge(replace(second, timeline=replace(later, unit="week"))).timeline is None
    assert first.merge(replace(second, timeline=None)).timeline is None
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


def test_hashed_columns_and_matrices_are_merged_by_column():
    names = ("cat", "", "dog|bird", *[""] * 29)
    one = model(topics(3, 32), vocabulary=Vocabulary.hashed(5).named(names), documents_seen=3)
    other = Vocabulary.hashed(5).named(("cow", "hen", "dog", *[""] * 29))
    two = model(shifted(one.components, 0.01), vocabulary=other, documents_seen=5)
    assert one.merge(two).vocabulary.names[:4] == ("cat|cow", "hen", "dog|bird", "")
    bare = [replace(each, vocabulary=None) for each in (one, two)]
    assert bare[0].merge(bare[1]).n_components == 3


@pytest.mark.parametrize(
    ("other", "error", "said"),
    [
        ({}, InvalidSettingError, r"all different, got models=2 equal=\[0, 1\]; pass each"),
        ({"documents_seen": 0}, InvalidSettingError, "how many documents"),
        ({"vocabulary": None}, VocabularyError, "second='none'"),
        (
            {"vocabulary": Vocabulary.given(WORDS, TextAnalyzer(lowercase=False))},
            VocabularyError,
            "one analyzer",
        ),
        ({"privacy": private()}, InvalidSettingError, "private=1 of=2; merge private models only"),
        ({"privacy": seeded()}, InvalidSettingError, "private=1 of=2; merge private models only"),
    ],
)
def test_what_has_no_true_merger_is_refused(other, error, said):
    first = counted(tables(1))
    second = replace(first, **({"alpha": first.alpha * 2} if other else {}), **other)
    with pytest.raises(error, match=said):
        first.merge(second)


def of(*statements):
    return [
        counted(tables(1), privacy=each, alpha=[1, 1, i + 1]) for i, each in enumerate(statements)
    ]


def test_windows_of_one_ledger_keep_its_promise():
    first, second = of(private(0, 99, generation=1), private(100, 299, generation=2))
    found = first.merge(second).privacy
    assert (found["epsilon"], found["delta"], found["ledger"]) == (1.0, 1e-6, "a")
    assert found["cohort"] == {"first": 0, "last": 299}
    assert [stage["first"] for stage in found["stages"]] == [0, 100]
    assert found["generation"] == 2
    assert "epsilon 1," in "".join(statement_lines(found))


def test_of_several_ledgers_what_they_promise_adds_up():
    bounds = {"pair": (0.05, "fixed")}
    first, second, third = of(
        private(ledger="a"), private(ledger="b", clip_bounds=bounds), private(ledger=None)
    )
    found = first.merge(second, third).privacy
    assert found["epsilon"] == 3.0
    assert 3 * Fraction(1e-6) <= found["delta"] < 3.000001e-6
    assert (found["ledger"], found["generation"]) == ("a, b, in memory", None)
    assert sorted(found["clip_bounds"]) == ["pair", "pair (2)"]
    # Twice in memory are two ledgers: nobody knows whether of the same documents.
    again, once = of(private(ledger=None), private(200, 300, ledger=None))
    assert again.merge(once).privacy["epsilon"] >= 2.0
    # So they are within models that were merged before, beside one ledger.
    parts = of(private(ledger=None), private(), private(ledger=None), private(100, 199))
    merged = [replace(a.merge(b), alpha=a.alpha) for a, b in (parts[:2], parts[2:])]
    two = replace(merged[1], alpha=merged[1].alpha * 2)
    assert merged[0].merge(two).privacy["epsilon"] >= 3.0
    # What is missing of each is missing of both.
    cut = of(private(missing=("refine 2",)), private(ledger="b", missing=("refine 1", "refine 2")))
    assert cut[0].merge(cut[1]).privacy["missing_stages"] == ["refine 1", "refine 2"]
    drawn_again, kept = of(seeded(), private())
    assert drawn_again.merge(kept).privacy["statement"] == SEEDED
    plain = counted(tables(1)).merge(counted(tables(1) + 1))
    assert plain.privacy == {"statement": NOT_PRIVATE}


@given(st.permutations(range(6)), st.data())
def test_however_merges_are_grouped_they_promise_the_same(order, data):
    bounds = {"pair": (0.05, "fixed")}
    every = [
        *(private(0, 99, generation=1), private(100, 199, clip_bounds=bounds, generation=2)),
        *(private(ledger="b", missing=("refine 2",)), private(ledger=None)),
        *(private(200, 299, ledger="b", clip_bounds=bounds), private(300, 399, ledger=None)),
    ]
    found = [every[number] for number in order]
    while len(found) > 1:
        size = data.draw(st.integers(2, len(found)))
        found = [*found[size:], merged_statement(found[:size])]
    assert found == [merged_statement(every)]
    # Two windows of a, two of b, and two fits in memory.
    assert (found[0]["epsilon"], found[0]["ledger"]) == (4.0, "a, b, in memory")
    json.dumps(found[0])


#: Choices of words end with "0"; models of one ledger have one each, and windows.
MODELS = ["a0 a1", "a0 a2", "b0 b1", "a1", "b2", "a1 b2", "a0 a1 a2", "a0 b0 b1"]


def of_stages(names):
    start = {"a": 0, "b": 1000}
    firsts = [(name, start[name[0]] + 100 * int(name[1])) for name in names.split()]
    noise = noise_multiplier(1.0, 1e-6)
    return private(stages=[ReleasedStage(name, at, at + 99, noise) for name, at in firsts])


@given(st.lists(st.sampled_from(MODELS), min_size=2, max_size=4), st.data())
def test_whether_models_of_one_ledger_are_merged_does_not_depend_on_groups(names, data):
    def merged_or_refused(statements, sizes):
        try:
            while len(statements) > 1:
                size = sizes(len(statements))
                statements = [*statements[size:], merged_statement(statements[:size])]
        except InvalidSettingError:
            return None
        return statements

    statements = [of_stages(each) for each in names]
    assert merged_or_refused(statements, lambda n: data.draw(st.integers(2, n))) == (
        merged_or_refused(statements, lambda n: n)
    )


def test_windows_of_two_choices_of_words_are_merged():
    found = merged_statement([of_stages(names) for names in MODELS[:3]])
    assert found["stages_of_models"] == [[0, 1], [0, 2], [3, 4]]
    assert found["epsilon"] == 1.0
    for wrong in ([], [[0, 1]], [[0, 1, 2], [3]], [[0, 1, 2], [3, 5]], [[0, 1, 2, 3, 4], []], "01"):
        with pytest.raises(InvalidSettingError, match="places of their stages"):
            check_statement({**found, "stages_of_models": wrong})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": 0.1}, "add up|bear out"),
        ({"delta": 1e-7}, "add up|bear out"),
        ({"stages": []}, "listed"),
        ({"noise_multiplier": 9.0}, "listed"),
        ({"stages": private(100, 199)["stages"]}, "add up"),
    ],
)
def test_ledgers_of_a_merged_statement_must_add_up(change, said):
    found = merged_statement([private(), private(ledger="b")])
    first, second = found["ledgers"]
    with pytest.raises(InvalidSettingError, match=said):
        check_statement({**found, "ledgers": [first, second | change]})


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (private(50, 149), r"other record slots .*; merge each release once$"),
        (private(), "other record slots"),
        (
            private(100, 199, privacy_unit="user", documents_per_user=3),
            r"one privacy_unit.*; merge those that were fitted",
        ),
        (private(100, 199, neighboring_relation="replace-one"), "one neighboring_relation"),
        (private(100, 199, vocabulary="hashed"), "one vocabulary"),
        (private(100, 199, public_model="1234"), "one public_model"),
        ({**private(100, 199), "sites": {"config": "1234"}}, "one sites"),
        ({**private(100, 199), "excluded": ["documents of sites"]}, "one excluded"),
    ],
)
def test_private_models_that_no_statement_is_true_of_are_refused(statement, said):
    first, second = of(private(), statement)
    with pytest.raises(InvalidSettingError, match=said):
        first.merge(second)


def test_the_command_merges_model_files(tmp_path):
    for name, table in (("a", tables(1)), ("b", np.vstack([tables(1), tables(9, 1)]))):
        counted(table).save(tmp_path / name)
    files, output = (tmp_path / "a", tmp_path / "b"), ("-o", tmp_path / "c")
    said = run("merge", *files, *output).stderr
    assert said == (
        f"20 documents of 2 models\n4 topics over 40 words, of 7 before\nmodel: {tmp_path / 'c'}\n"
    )
    assert load(tmp_path / "c").n_components == 4
    assert run("merge", *files, *output, "--max-distance", 0, "--quiet").stderr == ""
    assert load(tmp_path / "c").n_components == 4
    for n, ledger in enumerate("xy"):
        counted(tables(1) + n, privacy=private(ledger=ledger)).save(tmp_path / ledger)
    said = run("merge", tmp_path / "x", tmp_path / "y", *output).stderr
    assert said.startswith("20 record slots of 2 models")
    (tmp_path / "folder").mkdir()
    for arguments, wanted, code in (
        ((*files, tmp_path / "folder", *output), "files=2 folders=1", 2),
        ((*files, *output, "--state", tmp_path / "s"), "without --state", 2),
        ((tmp_path / "folder", *output, "--max-distance", 0.5), "needs model files", 2),
        ((*files, "-o", tmp_path / "a"), "must not replace", 78),
        ((tmp_path / "a", *output), "two or more", 78),
        ((tmp_path / "a", tmp_path / "a", *output), f"equal=['{tmp_path / 'a'}', ", 78),
        ((tmp_path / "a", tmp_path / "none", *output), "No such file", 74),
        ((tmp_path / "none", *output), "No such file", 74),
    ):
        assert wanted in refused("merge", *arguments, code=code)
