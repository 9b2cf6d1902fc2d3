"""Events keep their meaning on paper and abroad."""

import json
import math
import sys

import dp_accounting
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError, MissingExtraError
from streamlda.privacy.dp_event import to_dp_event
from streamlda.privacy.events import (
    MAX_DEPTH,
    Composed,
    GaussianRelease,
    LaplaceRelease,
    Parallel,
    from_json,
    to_json,
)

events = st.recursive(
    st.builds(GaussianRelease, st.floats(1e-3, 1e150))
    | st.builds(LaplaceRelease, st.floats(1e-150, 1e3)),
    lambda inner: (
        st.builds(Composed, st.lists(inner, max_size=3))
        | st.builds(Parallel, st.lists(inner, max_size=3))
    ),
    max_leaves=8,
)

#: As version 1 wrote them. These lines are never to be changed.
STORED = [
    ('{"kind": "gaussian", "noise_multiplier": 3.5}', GaussianRelease(3.5)),
    ('{"kind": "laplace", "epsilon": 0.25}', LaplaceRelease(0.25)),
    (
        '{"kind": "composed", "events": [{"kind": "gaussian", "noise_multiplier": 2}]}',
        Composed([GaussianRelease(2)]),
    ),
    ('{"kind": "parallel", "events": []}', Parallel([])),
]


@given(events)
def test_json_gives_the_same_event_again(event):
    again = from_json(json.loads(json.dumps(to_json(event))))
    assert again == event
    assert type(again) is type(event)
    assert hash(again) == hash(event)


@pytest.mark.parametrize(("text", "event"), STORED)
def test_what_was_stored_keeps_its_meaning(text, event):
    assert from_json(json.loads(text)) == event
    assert to_json(event) == json.loads(text)


def test_composed_is_not_parallel():
    composed = Composed([GaussianRelease(2)])
    parallel = Parallel([GaussianRelease(2)])
    assert composed != parallel


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"kind": "renyi", "alpha": 2}, "kind='renyi'"),
        ({"noise_multiplier": 2.0}, "kind=None"),
        ({"kind": "gaussian"}, "noise_multiplier and nothing else"),
        ({"kind": "gaussian", "noise_multiplier": 2.0, "count": 3}, "nothing else"),
        ({"kind": "gaussian", "noise_multiplier": "2"}, "noise_multiplier='2'"),
        ({"kind": "laplace", "epsilon": math.nan}, "epsilon=nan"),
        ({"kind": "composed", "events": "gaussian"}, "events must be a list"),
        ({"kind": "parallel", "events": [{"kind": "zcdp"}]}, "kind='zcdp'"),
    ],
)
def test_what_is_not_known_is_refused(value, found):
    with pytest.raises(InvalidSettingError, match=found):
        from_json(value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *((GaussianRelease, value) for value in (0, 0.9e-3, 1e151, math.nan, True, "3", None)),
        *((LaplaceRelease, value) for value in (0, -1, 1001, 1e-151, math.inf, b"1", 10**400)),
    ],
)
def test_a_parameter_out_of_range_is_refused(kind, value):
    name = "noise_multiplier" if kind is GaussianRelease else "epsilon"
    with pytest.raises(InvalidSettingError, match=f"^{name} must"):
        kind(value)


def test_only_events_can_be_composed():
    no_event = "gaussian"
    number = 1.0
    stored = {"kind": "gaussian", "noise_multiplier": 2.0}
    with pytest.raises(InvalidSettingError, match="type='float'"):
        Composed([number])
    with pytest.raises(InvalidSettingError, match="type='dict'"):
        Parallel([GaussianRelease(1), stored])
    with pytest.raises(InvalidSettingError, match="type='str'"):
        to_json(no_event)


def test_nesting_has_an_end():
    event = GaussianRelease(1)
    stored = {"kind": "gaussian", "noise_multiplier": 1.0}
    for _ in range(MAX_DEPTH - 1):
        event, stored = Composed([event]), {"kind": "composed", "events": [stored]}
    assert from_json(stored) == event
    deepest = Composed([event])
    with pytest.raises(InvalidSettingError, match="nested at most"):
        Composed([deepest])
    for _ in range(2000):
        stored = {"kind": "parallel", "events": [stored]}
    with pytest.raises(InvalidSettingError, match="nested at most"):
        from_json(stored)


def test_export_to_dp_accounting():
    no_event = 3
    gaussian, laplace = GaussianRelease(2), LaplaceRelease(0.25)
    theirs = dp_accounting.ComposedDpEvent(
        [dp_accounting.GaussianDpEvent(2.0), dp_accounting.LaplaceDpEvent(4.0)]
    )
    assert to_dp_event(Composed([gaussian, laplace])) == theirs
    assert to_dp_event(Parallel([GaussianRelease(3), gaussian])) == theirs.events[0]
    # Neither costs most in both respects, so both count.
    assert to_dp_event(Parallel([GaussianRelease(100), laplace])) == dp_accounting.ComposedDpEvent(
        [dp_accounting.GaussianDpEvent(100.0), dp_accounting.LaplaceDpEvent(4.0)]
    )
    assert to_dp_event(Parallel([])) == dp_accounting.ComposedDpEvent([])
    with pytest.raises(InvalidSettingError, match="type='int'"):
        to_dp_event(no_event)


def test_export_names_the_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(MissingExtraError, match=r"streamlda\[accounting\]"):
        to_dp_event(GaussianRelease(1))
