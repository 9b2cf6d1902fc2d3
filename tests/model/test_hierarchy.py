"""Topics as a tree, and a model of fewer topics."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError
from streamlda.model.diagnostics import hellinger
from streamlda.model.hierarchy import topic_tree
from streamlda.model.over_time import Timeline
from streamlda.model.topic_model import load
from streamlda.report import render_report
from tests.cli.conftest import refused, run
from tests.model.test_merging import OF_ONE, names_of_topics
from tests.service.planted import model, over_time, private, topics


@given(seed=st.integers(0, 10**6), n=st.integers(2, 7))
def test_the_tree_is_that_of_ward_and_two_topics_are_joined_at_their_distance(seed, n):
    rows = topics(n, 30, seed=seed)
    tree = topic_tree(rows)
    apart = hellinger(rows, rows) + 2 * np.eye(n)
    assert tree[0, 2] == pytest.approx(apart.min())
    assert sorted(tree[0, :2].tolist()) == sorted(divmod(int(apart.argmin()), n))
    assert tree[-1, 3] == n
    assert sorted(tree[:, :2].ravel()) == list(range(2 * n - 2))
    assert np.all(np.diff(tree[:, 2]) >= -1e-12)
    assert topic_tree(rows[:1]).shape == (0, 4)


def test_topics_that_are_joined_add_up():
    rows = topics(3, 40)
    near = 0.9 * rows[[0, 1, 0, 2]] + 0.1 * topics(4, 40, seed=9)
    first = model(near, alpha=[1, 2, 3, 4], **over_time(), documents_seen=7)
    made = first.reduce(3)
    share = first.prevalence
    assert made.diagnostics["reduced_from"] == [[0, 2], [1], [3]]
    both = (share[0] * near[0] + share[2] * near[2]) / (share[0] + share[2])
    np.testing.assert_allclose(made.components, [both, near[1], near[3]], atol=1e-12)
    np.testing.assert_allclose(made.prevalence, [share[0] + share[2], share[1], share[3]])
    assert made.alpha.tolist() == [4, 2, 4]
    assert made.interval.prevalence == (0.75, 0.25, 0.0)
    assert made.timeline.tokens.tolist() == [[1, 0, 3], [0, 0, 0]]
    # What was counted of a topic that is no more is not known of the joined one.
    assert made.diagnostics["topic_npmi"] == [None, -0.25, 0.125]
    assert (made.documents_seen, made.background.tolist()) == (7, first.background.tolist())
    assert first.reduce(4).components.tolist() == first.components.tolist()
    for n_topics in (0, 5, 1.5):
        with pytest.raises(InvalidSettingError, match=f"n_topics={n_topics}"):
            first.reduce(n_topics)


def test_a_joined_topic_has_the_names_of_its_parts():
    rows = topics(2, 40)
    near = 0.95 * rows[[0, 1, 0, 0]] + 0.05 * topics(4, 40, seed=9)
    settings = names_of_topics("space", "law", "orbit") | {"seed": 3}
    made = model(near, settings=settings | OF_ONE).reduce(2)
    assert made.diagnostics["reduced_from"] == [[0, 2, 3], [1]]
    assert made.names == ["space + orbit", "law"]
    assert made.seeds == ()
    assert made.settings["seed"] == 3
    assert not set(OF_ONE) & set(made.settings)
    assert not set(OF_ONE) & set(model(near, settings=OF_ONE).reduce(2).settings)


def test_nothing_is_said_that_was_not_known_and_the_promise_stays():
    line = Timeline(unit="day", starts=[0], tokens=[[1, 2, 3]], documents=[1])
    made = model(
        topics(3, 40), privacy=private(), timeline=line, diagnostics={"mixed_with_background": [1]},
        representative_documents=[[{"id": "a", "proportion": 0.5}], [], []],
    )  # fmt: skip
    fewer = made.reduce(2)
    assert fewer.privacy == made.privacy
    assert fewer.representative_documents is None
    assert set(fewer.diagnostics) == {"reduced_from"}
    assert fewer.timeline.tokens.sum() == 6


def test_the_command_and_the_report_show_the_tree(tmp_path):
    made, few = model(topics(5, 40)), tmp_path / "few"
    made.save(tmp_path / "m")
    said = run("reduce", tmp_path / "m", "-k", 3, "-o", few).stderr.splitlines()
    groups = load(few).diagnostics["reduced_from"]
    assert said[0] == "3 topics of 5"
    joined = [f"joined: {', '.join(map(str, group))}" for group in groups if len(group) > 1]
    assert said[1:-1] == joined
    assert load(few).digest == made.reduce(3).digest
    for wanted, *arguments in (
        ("n_topics=6; pass a number of topics up to the 5", "-k", 6, "-o", few),
        ("would replace", "-k", 2, "-o", tmp_path / "m"),
    ):
        assert wanted in refused("reduce", tmp_path / "m", *arguments)

    replace(made, diagnostics={"topic_npmi": [None, 0.25, 0.5, 0.5, 0.5]}).save(tmp_path / "n")
    listed = run("topics", tmp_path / "n").stdout.splitlines()
    (row,) = [line for line in listed if line.startswith("    0 ")]
    assert row.split()[2] == "-"

    tree = topic_tree(made.components)
    (drawn,) = re.findall(r'<svg[^>]*class="plot tree".*?</svg>', render_report(made), re.DOTALL)
    lines = re.findall(r'points="([^"]*)"', drawn)
    assert len(lines) == 4
    ends = [float(line.split()[1].split(",")[0]) for line in lines]
    assert max(ends) == ends[-1] == 626
    heights = tree[:, 2] / tree[-1, 2]
    np.testing.assert_allclose((np.array(ends) - 260) / 366, heights, atol=1e-2)
    named = [int(text) for text in re.findall(r">(\d+) ", drawn)]
    assert sorted(named) == [0, 1, 2, 3, 4]
    assert 'class="plot tree"' not in render_report(model(topics(1, 40)))
