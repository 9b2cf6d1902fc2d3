"""Private models that are merged: what their ledgers promise together."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError
from streamlda.guarantee.accounting import noise_multiplier
from streamlda.privacy.merged_statement import merge_statements
from streamlda.privacy.statement import (
    NOT_PRIVATE,
    SEEDED,
    ReleasedStage,
    check_statement,
    state_seeds,
    statement_lines,
)
from tests.model.test_merging import model_of_tokens, tables
from tests.service.planted import private


def of(*statements):
    return [
        model_of_tokens(tables(1), privacy=each, alpha=[1, 1, number])
        for number, each in enumerate(statements, 1)
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
    assert cut[0].merge(cut[1]).privacy["missing"] == ["refine 1", "refine 2"]
    drawn_again, kept = of(state_seeds(), private())
    assert drawn_again.merge(kept).privacy["statement"] == SEEDED
    plain = model_of_tokens(tables(1)).merge(model_of_tokens(tables(1) + 1))
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
        found = [*found[size:], merge_statements(found[:size])]
    assert found == [merge_statements(every)]
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
                statements = [*statements[size:], merge_statements(statements[:size])]
        except InvalidSettingError:
            return None
        return statements

    statements = [of_stages(each) for each in names]
    assert merged_or_refused(statements, lambda n: data.draw(st.integers(2, n))) == (
        merged_or_refused(statements, lambda n: n)
    )


def test_windows_of_two_choices_of_words_are_merged():
    found = merge_statements([of_stages(names) for names in MODELS[:3]])
    assert found["stages_of_models"] == [[0, 1], [0, 2], [3, 4]]
    assert found["epsilon"] == 1.0
    for wrong in ([], [[0, 1]], [[0, 1, 2], [3]], [[0, 1, 2], [3, 5]], [[0, 1, 2, 3, 4], []], "01"):
        with pytest.raises(InvalidSettingError, match="places of their stages"):
            check_statement({**found, "stages_of_models": wrong})


def test_ledgers_of_a_merged_statement_must_add_up():
    for change, said in (
        ({"epsilon": 0.1}, "add up|bear out"),
        ({"delta": 1e-7}, "add up|bear out"),
        ({"stages": []}, "listed"),
        ({"noise_multiplier": 9.0}, "listed"),
        ({"stages": private(100, 199)["stages"]}, "add up"),
    ):
        found = merge_statements([private(), private(ledger="b")])
        first, second = found["ledgers"]
        with pytest.raises(InvalidSettingError, match=said):
            check_statement({**found, "ledgers": [first, second | change]})


def test_private_models_that_no_statement_is_true_of_are_refused():
    for statement, said in (
        (private(50, 149), r"the same record slots, .*; merge each release once$"),
        (private(), "the same record slots"),
        (
            private(100, 199, privacy_unit="user", documents_per_user=3),
            r"differ in privacy_unit.*; merge those that were fitted",
        ),
        (private(100, 199, neighboring_relation="replace-one"), "differ in neighboring_relation"),
        (private(100, 199, vocabulary="hashed"), "differ in vocabulary"),
        (private(100, 199, public_model="1234"), "differ in public_model"),
        ({**private(100, 199), "sites": {"config": "1234"}}, "differ in sites"),
        ({**private(100, 199), "excluded": ["documents of sites"]}, "differ in excluded"),
    ):
        first, second = of(private(), statement)
        with pytest.raises(InvalidSettingError, match=said):
            first.merge(second)
