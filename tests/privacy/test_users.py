"""The bound on users: other users never notice, the sums move by g C at most, restarts forget."""

import json
import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidDocumentsError, InvalidSettingError
from streamlda.guarantee.users import UserBound

NAMES = ["a", "b", "c", "d", "e", b"f", "\udcff", None]

#: Stages in which few users come again and again, in any order, with unknown ones between.
stages = st.lists(st.sampled_from(NAMES), max_size=40)
limits = st.integers(1, 4)


@given(stages, st.sampled_from(NAMES[:-1]), limits)
def test_other_users_never_notice_that_one_is_removed_or_replaced(users, removed, limit):
    own = np.array([user == removed for user in users], dtype=bool)
    masks = [UserBound(limit).accept(users)]
    for other in (None, "new"):
        changed = [other if mine else user for user, mine in zip(users, own, strict=True)]
        masks.append(UserBound(limit).accept(changed))
    assert all(np.array_equal(masks[0][~own], mask[~own]) for mask in masks[1:])
    assert all(mask[own].sum() <= limit for mask in masks)
    assert not masks[1][own].any()


@given(stages, limits, st.integers(0, 40))
def test_accept_equals_counting_names_also_in_a_stage_that_is_resumed(users, limit, cut):
    seen, wanted = Counter(), []
    for user in users:
        seen[user] += 1
        wanted.append(user is not None and seen[user] <= limit)
    bound = UserBound(limit)
    first = bound.accept(users[:cut])
    saved = json.dumps({name: array.tolist() for name, array in bound.state().items()})
    kinds = {name: array.dtype for name, array in bound.state().items()}
    arrays = {name: np.array(values, kinds[name]) for name, values in json.loads(saved).items()}
    arrays["digests"] = arrays["digests"].reshape(-1, 16)
    rest = UserBound.from_state(arrays).accept(users[cut:])
    assert [*first, *rest] == wanted
    assert bound.accept(users[cut:]).tolist() == wanted[cut:]
    assert len(bound._accepted) == len(set(users) - {None})


def test_unknown_users_are_refused_and_text_is_its_utf8_bytes():
    bound = UserBound(1)
    assert bound.accept([None, "", b"", None]).tolist() == [False] * 4
    assert bound.accept(["é", "é".encode(), "É", "é "]).tolist() == [True, False, True, True]


def test_restart_forgets_users_and_digests_of_two_stages_cannot_be_compared():
    bound = UserBound(2)
    seen = set()
    for stage in range(20):
        bound.restart()
        accepted = sum(bound.accept([f"{i % 50}" for i in range(500)]).sum() for _ in range(5))
        assert accepted == 100
        state = bound.state()
        # Memory is bounded by the users of one stage.
        assert len(state["digests"]) == len(bound._accepted) == 50
        assert state["accepted"].tolist() == [2] * 50
        seen |= {state["key"].tobytes(), *(row.tobytes() for row in state["digests"])}
        assert len(seen) == 51 * (stage + 1)


def test_state_holds_sorted_digests_and_no_names():
    names = [f"name-{i}" for i in range(100)]
    forward, backward = UserBound(3), UserBound(3)
    forward.accept(names)
    backward._key = forward._key
    backward.accept(names[::-1])
    state = forward.state()
    assert b"name" not in b"".join(array.tobytes() for array in state.values())
    assert all(np.array_equal(state[name], array) for name, array in backward.state().items())


def test_errors_name_the_rule_and_never_the_user():
    bound = UserBound(2)
    with pytest.raises(InvalidDocumentsError, match="str, bytes or None, got type='int'") as caught:
        bound.accept(["secret", 4711])
    assert not {"secret", "4711"} & set(re.findall(r"\w+", str(caught.value)))
    assert len(bound._accepted) == 0
    with pytest.raises(InvalidDocumentsError, match="sequence of names, got users='str'"):
        bound.accept("secret")
    for limit in (0, 2**31 + 1):
        with pytest.raises(InvalidSettingError, match="documents_per_user"):
            UserBound(limit)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("key", lambda a: a[:-1]),
        ("digests", lambda a: a[::-1]),
        ("digests", lambda a: a.astype(np.int64)),
        ("accepted", lambda a: a * 0),
        ("accepted", lambda a: a + 2),
        ("more", lambda a: np.zeros(1)),
    ],
)
def test_a_damaged_state_is_refused(name, damage):
    bound = UserBound(2)
    bound.accept(["a", "b", "c", "b"])
    state = bound.state()
    for wrong in ({**state, name: damage(state.get(name))}, {"key": state["key"]}):
        with pytest.raises(InvalidSettingError, match="a saved state"):
            UserBound.from_state(wrong)
