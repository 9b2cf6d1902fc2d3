"""Shares of topics over the time of a corpus, against sums made document by document."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from streamlda.cli.report import report
from streamlda.errors import InvalidDocumentsError, InvalidSettingError, VocabularyError
from streamlda.privacy.statement import seeded
from streamlda.report import follow_over_time, over_time
from streamlda.report.over_time import MOST_MOMENTS, course_from_timeline
from streamlda.text.analysis import TextAnalyzer
from streamlda.text.vocabulary import Vocabulary
from tests.service.planted import model, private, topics, words

DAY = 86_400.0


def texts_of(components, n, *, seed, length=40):
    """Draw documents that mix two topics, as texts."""
    draw, names = np.random.default_rng(seed), np.array(words(components.shape[1]))
    found = []
    for _ in range(n):
        mix = draw.dirichlet(np.full(len(components), 0.3))
        found.append(" ".join(names[draw.choice(len(names), length, p=mix @ components)]))
    return found


def test_tokens_are_those_of_the_proportions_in_any_order():
    made = model(topics(3, 50), documents_seen=1)
    draw = np.random.default_rng(0)
    texts = [*texts_of(made.components, 60, seed=1), "", "unknown words"]
    times = [float(t) for t in draw.uniform(-40 * DAY, 40 * DAY, len(texts))]
    times[3] = times[10] = None
    found = follow_over_time(made, zip(texts, times, strict=True), "week")
    by_week = {}
    for text, time in zip(texts, times, strict=True):
        if time is not None:
            # 1970-01-05 was a Monday.
            week = int((time - 4 * DAY) // (7 * DAY) * 7 * DAY + 4 * DAY)
            n = int(made.vocabulary.encode([text]).batch.lengths[0])
            sums = by_week.setdefault(week, [0, np.zeros(3)])
            sums[0] += 1
            sums[1] += n * made.transform([text])[0]
    line = found.timeline
    assert line.starts.tolist() == sorted(by_week)
    assert line.documents.tolist() == [by_week[week][0] for week in sorted(by_week)]
    np.testing.assert_allclose(line.tokens, [by_week[week][1] for week in sorted(by_week)])
    assert (line.undated, line.late, line.unit) == (2, 0, "week")
    shuffled = draw.permutation(len(texts))
    again = follow_over_time(made, [(texts[i], times[i]) for i in shuffled], "week")
    np.testing.assert_allclose(again.timeline.tokens, line.tokens)


def test_many_moments_are_added_up():
    made = model(topics(2, 20))
    n = 2 * MOST_MOMENTS + 5
    many = follow_over_time(made, [("waa wab waa", i * 3600.0) for i in range(n)], "hour")
    course = course_from_timeline(many.timeline, [0, 1])
    assert course.together == 3
    assert len(course.at) == -(-n // 3)
    assert sum(course.documents) == n
    assert course.labels[1] == "1970-01-01 03:00"
    assert course.shares[0][0] == pytest.approx(many.timeline.shares[0, 0])


def picky(text):
    if "bad" in text:
        raise ValueError(text)
    return text.split()


def test_texts_that_the_analyzer_fails_on_are_counted_and_left_out(tmp_path):
    component = topics(2, 20)
    analyzer = TextAnalyzer(function=picky)
    made = model(component, vocabulary=Vocabulary.given(words(20), analyzer))
    good = [("waa wab waa", 0.0), ("wac", DAY)]
    found = follow_over_time(made, [good[0], ("waa bad", DAY), ("bad", None), good[1]])
    expected = follow_over_time(made, good)
    assert (found.unreadable, found.timeline.undated) == (1, 1)
    assert found.timeline.documents.tolist() == [1, 1]
    np.testing.assert_array_equal(found.timeline.tokens, expected.timeline.tokens)
    with pytest.raises(InvalidDocumentsError, match="unreadable=2; check the analyzer"):
        follow_over_time(made, [("bad", 0.0), ("bad wab", DAY)])
    made.save(tmp_path / "m")
    lines = [json.dumps({"text": text, "t": time}) for text, time in [*good, ("bad", DAY)]]
    (tmp_path / "d.jsonl").write_text("\n".join(lines))
    given = ["--over-time", tmp_path / "d.jsonl", "--time-field", "t", "-o", tmp_path / "r.html"]
    name = f"{picky.__module__}:{picky.__qualname__}"
    said = CliRunner().invoke(
        report,
        [*map(str, [tmp_path / "m", *given]), "--set", f"vocabulary.analyzer={name}"],
        catch_exceptions=False,
    )
    assert said.exit_code == 0
    assert "2 documents over time" in said.stderr
    assert "1 record skipped: analyzer 1" in said.stderr


def test_what_must_not_be_shown_over_time_is_refused(monkeypatch):
    for statement in (private(), seeded()):
        with pytest.raises(InvalidSettingError, match="snapshots of its windows"):
            follow_over_time(model(topics(), privacy=statement), [])
    monkeypatch.setattr(over_time, "MOST_BINS", 3)
    with pytest.raises(
        InvalidSettingError, match=r"at most 3 bins .* got bins=[0-9]+; choose longer ones"
    ):
        follow_over_time(model(topics()), [("waa", i * DAY) for i in range(4)])
    with pytest.raises(VocabularyError):
        follow_over_time(model(topics(), vocabulary=None), [("waa", 0.0)])
    with pytest.raises(InvalidSettingError, match=r"must have a time.* documents=1 with_time=0"):
        follow_over_time(model(topics()), [("waa wab", None)])
    with pytest.raises(InvalidSettingError, match="bins='decade'"):
        follow_over_time(model(topics()), [("waa wab", 5.0)], "decade")
