"""The privacy statement of an artefact: what it says, and which claims are refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError
from streamlda.guarantee.accounting import noise_multiplier
from streamlda.privacy.merged_statement import merge_statements
from streamlda.privacy.statement import (
    VOCABULARIES,
    ReleasedStage,
    check_statement,
    not_private,
    private_statement,
    state_seeds,
    statement_lines,
)

Z = noise_multiplier(1.0, 1e-6)
STAGES = (ReleasedStage("words", 0, 199, Z), ReleasedStage("moments", 200, 999, 1.5 * Z))
KEYS = {
    *("statement", "epsilon", "delta", "privacy_unit", "documents_per_user"),
    *("neighboring_relation", "mode", "horizon", "mechanism", "noise", "noise_multiplier"),
    *("clip_bounds", "vocabulary", "cohort", "stages", "ledger", "excluded"),
}


def claim(**changes):
    settings = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "stages": STAGES,
        "clip_bounds": {"first": (1.0, "worst-case"), "pair": (0.03, "private-quantile")},
        "vocabulary": "private selection",
        "secure": True,
        "ledger": "0123abcd",
    }
    return private_statement(**(settings | changes))


def test_a_private_statement_is_plain_json_with_the_documented_keys():
    statement = claim()
    assert set(statement) == KEYS | {"generation"}
    assert json.loads(json.dumps(statement, allow_nan=False)) == statement
    assert (statement["statement"], statement["noise_multiplier"]) == ("private", Z)
    assert statement["cohort"] == {"first": 0, "last": 999}
    assert statement["stages"][1]["name"] == "moments"
    assert statement["clip_bounds"]["pair"] == {"l2_clip_norm": 0.03, "source": "private-quantile"}
    assert claim(ledger=None)["ledger"] == "in memory"
    assert claim(generation=7)["generation"] == 7
    # Of 0.1.0, where it was not recorded.
    del statement["generation"]
    check_statement(statement)
    for vocabulary in VOCABULARIES[:4]:
        assert claim(vocabulary=vocabulary)["vocabulary"] == vocabulary
    # Keys of a later version are skipped.
    later = {**statement, "sites": 3}
    check_statement(later)
    assert statement_lines(later) == statement_lines(statement)


def test_relation_and_public_number_of_records_are_said_in_the_terms_of_the_literature():
    statement = claim(neighboring_relation="add-remove")
    assert statement["neighboring_relation"] == "zero-out"
    assert statement["excluded"][0].startswith("the number of records")
    old = {**statement, "neighboring_relation": "add-remove", "excluded": statement["excluded"][1:]}
    for shown in (
        statement_lines(old),
        statement_lines(merge_statements([old, statement | {"ledger": "4567cdef"}])),
    ):
        found = {line[:12].strip(): line[12:] for line in shown}
        assert found["unit"] == "document, zero-out"
        assert found["not covered"].startswith("the number of records")


def test_a_private_statement_is_shown_in_few_lines():
    lines = statement_lines(claim())
    assert 6 <= len(lines) <= 10
    assert all(len(line) <= 136 for line in lines)
    found = {line[:12].strip(): line[12:] for line in lines}
    assert found["privacy"] == "private: epsilon 1, delta 1e-06"
    assert (found["unit"], found["words"]) == ("document, zero-out", "private selection")
    assert "timing" in found["not covered"]
    one = [ReleasedStage("moments", 0, 9, 1.1 * Z)]
    users = claim(privacy_unit="user", documents_per_user=3, stages=one)
    assert "user, zero-out, at most 3 documents in a stage" in "\n".join(statement_lines(users))


def test_what_promises_nothing_says_so_in_one_line():
    for statement, wanted in (
        (not_private(), "not private"),
        (state_seeds(), "not private (seeded)"),
        ({"statement": "none"}, "not private"),
        ({}, "not private"),
        ({"statement": "not private", "later": [1]}, "not private"),
    ):
        check_statement(statement)
        assert statement_lines(statement) == [f"privacy     {wanted}"]
    lines = statement_lines({"statement": "private as of 2031\x1b[2J", "epsilon": 1.0})
    assert lines[0] == "privacy     not private"
    assert "is not known" in lines[1]
    assert "\x1b" not in lines[1]


B = ReleasedStage("b", 10, 19, Z)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"secure": False}, "noise='seeded'"),
        ({"vocabulary": "learned, not private"}, "vocabulary='learned"),
        ({"epsilon": 0.0}, "epsilon must be > 0"),
        ({"delta": 1.0}, "delta must lie in"),
        ({"documents_per_user": 3}, "documents_per_user=3"),
        ({"privacy_unit": "user"}, "documents_per_user=None"),
        ({"neighboring_relation": "near"}, "neighboring_relation"),
        ({"mode": "prefix", "horizon": 0}, "horizon"),
        ({"horizon": 9}, "horizon"),
        ({"clip_bounds": {}}, "clip_bounds"),
        ({"clip_bounds": {"pair": (0.1, "these documents")}}, "clip_bounds"),
        ({"clip_bounds": {"pair": (0.0, "fixed")}}, "l2_clip_norm"),
        ({"ledger": "place/of/ledger"}, "ledger='a path'"),
        ({"generation": 0}, "generation=0"),
        ({"stages": ()}, "stages"),
        ({"stages": (ReleasedStage("a", 5, 4, Z),)}, "stages"),
        ({"stages": (ReleasedStage("a", 0, 2**63, Z),)}, "in order"),
        # One stage just suffices, two on the same documents or of one user do not.
        ({"stages": [ReleasedStage("a", 0, 9, Z * (1 - 1e-9))]}, "bear out epsilon"),
        ({"stages": [B], "epsilon": 1 - 1e-8}, "bear out epsilon"),
        ({"stages": [B, ReleasedStage("a", 19, 29, Z)]}, "bear out epsilon"),
        ({"privacy_unit": "user", "documents_per_user": 1}, "bear out epsilon"),
    ],
)
def test_a_claim_that_does_not_hold_is_refused(changes, match):
    claim(stages=[B])
    claim(stages=[ReleasedStage("a", 0, 9, Z), B])
    with pytest.raises(InvalidSettingError, match=match):
        claim(**changes)


def test_a_missing_or_wrong_key_is_refused_and_shown_as_not_private():
    for key in KEYS - {"statement"}:
        statement = claim()
        del statement[key]
        with pytest.raises(
            InvalidSettingError, match=f"a private statement is not .* got reason=.*{key}"
        ):
            check_statement(statement)
        lines = statement_lines(statement)
        assert lines[0] == "privacy     not private"
        assert key in lines[1]
    for key, value in (("noise_multiplier", 2 * Z), ("cohort", {"first": 0, "last": 10**6})):
        with pytest.raises(InvalidSettingError, match=f"got {key}="):
            check_statement({**claim(), key: value})


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.sampled_from(sorted(KEYS)), values)
def test_a_damaged_statement_is_never_an_error_to_look_at(key, value):
    for damaged in (value, None, 7, [7], {"a": 7}):
        lines = statement_lines({**claim(), key: damaged})
        assert 1 <= len(lines) <= 10
        assert all(line.isprintable() for line in lines)
