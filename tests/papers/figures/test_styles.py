"""Plots can be read: in no panel do two lines look alike, and labels do not cover each other."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from bench import tables
from bench.styles import apart

#: The plots that are drawn on nothing but stored results.
RESULTS = tables.read_results()


@pytest.fixture
def figures(monkeypatch):
    """Return what is drawn; nothing is closed."""
    from matplotlib import pyplot

    found = []
    monkeypatch.setattr(pyplot, "close", found.append)
    # Places of labels are known before anything is rendered, which takes most of the time.
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **how: path.touch())
    yield found
    monkeypatch.undo()
    pyplot.close("all")


def test_no_two_lines_of_a_panel_look_alike_and_every_line_is_named(figures, tmp_path):
    tables.plot(RESULTS, tmp_path)
    drawn = {path.name for path in tmp_path.glob("*.png")}
    assert drawn == {path.name for path in tables.PLOTS.glob("*.png")}
    assert len(figures) == len(drawn)
    for figure in figures:
        named = {text.get_text() for axis in figure.axes for text in axis.texts}
        for axis in figure.axes:
            lines = [x for x in axis.get_lines() if not x.get_label().startswith("_")]
            looks = Counter((x.get_color(), x.get_linestyle(), x.get_marker()) for x in lines)
            assert max(looks.values(), default=1) == 1, axis.get_title()
            assert {line.get_label() for line in lines} <= named, axis.get_title()
            if axis.texts and lines:
                assert {x.get_label() for x in lines} == {text.get_text() for text in axis.texts}


@given(st.lists(st.floats(0, 1), max_size=15), st.floats(0.01, 0.06))
def test_labels_are_apart_within_the_panel_and_in_order(places, gap):
    found = apart(sorted(places), gap)
    assert len(found) == len(places)
    assert all(b - a >= gap - 1e-9 for a, b in itertools.pairwise(found))
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in found)
