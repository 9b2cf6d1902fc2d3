"""The report as a file: what it says of models, what it refuses, and what it never lets through."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from streamlda.errors import InvalidSettingError, VocabularyError
from streamlda.model.over_time import Interval
from streamlda.privacy.statement import seeded
from streamlda.report import render_report, write_report
from streamlda.report.facts import gather
from streamlda.report.wording import in_plain_words, is_private
from streamlda.text.vocabulary import Vocabulary
from tests import browser
from tests.service.planted import model, private, shifted, topics, words

HOSTILE = [*browser.HOSTILE, "</script>", '"x"']


class Page(HTMLParser):
    """The text of a page by the section it is in, and all its tags."""

    def __init__(self, html):
        super().__init__()
        self.text, self.tags, self.attributes = {"": ""}, [], []
        self._section, self._raw = "", False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append((tag, dict(attrs)))
        self._raw = tag in ("style", "script")
        if tag == "section":
            self._section = dict(attrs)["id"]
            self.text[self._section] = ""

    def handle_endtag(self, tag):
        self._raw = False

    def handle_data(self, data):
        if not self._raw:
            self.text[self._section] += data

    def all(self, tag, **wanted):
        return [a for name, a in self.attributes if name == tag and wanted.items() <= a.items()]


def page_of(*models, **settings):
    return Page(render_report(models, [f"m{i}" for i in range(len(models))], **settings))


def spectral(K=4, t=8, **more):
    """Return diagnostics in which 3 directions stand out and the last topic does not."""
    return {
        "eigenvalues": [2.0] * K,
        "eigenvalue_noise": [0.1] * (K - 1) + [1.9],
        "topic_supported": [True] * (K - 1) + [False],
        "documents_behind_directions": 600,
        "pair_eigenvalues": [9.0, 8.0, 7.0] + [0.5 - 0.01 * i for i in range(t - 3)],
        "pair_noise": [0.6] * K,
        "warnings": ["1 of 4 topics <do> not stand out"],
        **more,
    }


def pair():
    """Return two models, of which the second lacks a topic of the first and has a new one."""
    table = shifted(topics(), 0.3)
    rows = [table[3], topics(1, seed=7)[0], table[1], table[0]]
    return (
        model(topics(), diagnostics=spectral()),
        model(rows, alpha=[1, 2, 3, 4], diagnostics=spectral()),
    )


def hostile_model(**more):
    """Return a model with words that are no text to a careless page, probable in every topic."""
    table = topics()
    table[:, : len(HOSTILE)] += 1
    table /= table.sum(axis=1, keepdims=True)
    names = [*HOSTILE, *words(table.shape[1] - len(HOSTILE))]
    return model(table, vocabulary=Vocabulary.given(names), **more)


def test_the_page_tells_topics_numbers_and_origin():
    made = model(
        topics(), diagnostics=spectral(), documents_seen=1234, settings={"seed": 7, "note": "<i>"}
    )
    page = page_of(made, title="My <topics>")
    assert "My <topics>" in page.text[""]
    assert "1,234" in page.text["now"]
    assert "3 suggested" in page.text["now"]
    assert len(page.all("article")) == 4
    for row, k in enumerate(np.argsort(-made.alpha)):
        assert page.all("article")[row]["id"] == f"topic-{k}"
        for word, _ in made.top_words(10)[k]:
            assert word in page.text["topics"]
    assert "Suggested: 3 topics." in page.text["number"]
    assert "not above noise" in page.text["topics"]
    assert "Topic 3" in page.text["doubts"]
    assert "Nothing is promised" in page.text["privacy"]
    for said in ("seed 7", "note <i>", made.versions["numpy"], "1 of 4 topics <do> not"):
        assert said in page.text["making"]


def test_words_titles_and_labels_are_only_ever_text():
    first, second, *_ = HOSTILE
    made = hostile_model(settings={first: second})
    page = Page(render_report([made, made], [first, second], title=second))
    # Its data and its program.
    assert page.tags.count("script") == 2
    assert page.tags.count("img") == 1
    assert not [a for _, attributes in page.attributes for a in attributes if a.startswith("on")]
    for name in HOSTILE:
        assert name in page.text["topics"]
    assert second in page.text[""]
    assert page.text["making"].count(first) == 3


def test_nothing_runs_but_what_the_policy_names():
    html = render_report([model(topics())], ["m"])
    page = Page(html)
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    allowed = dict(part.strip().split(" ", 1) for part in policy["content"].split(";"))
    assert allowed["default-src"] == "'none'"
    assert allowed["base-uri"] == allowed["form-action"] == "'none'"
    for kind, tag in (("style-src", "style"), ("script-src", "script")):
        (content,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert allowed[kind] == f"'sha256-{digest}'"
    assert not [a for _, attributes in page.attributes for a in attributes if a == "style"]
    addresses = [
        value
        for _, attributes in page.attributes
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "action", "data")
    ]
    assert addresses
    assert all(address.startswith(("#", "data:image/svg+xml")) for address in addresses)


def test_topics_keep_their_numbers_over_models():
    first, second = pair()
    facts = gather([first, second], ["a", "b"], 5)
    assert [(topic.id, topic.row) for topic in facts.topics] == [(0, 3), (1, 2), (4, 1), (3, 0)]
    assert [topic.is_new for topic in facts.topics] == [False, False, True, False]
    shares = facts.course.shares
    assert shares[0] == (pytest.approx(0.1), pytest.approx(0.4))
    assert shares[4] == (None, pytest.approx(0.2))
    assert shares[2] == (pytest.approx(0.3), None)
    assert set(facts.gone) == facts.past == {2}
    page = page_of(first, second)
    for said in ("3 topics stayed", "1 came and 1 went", "Topic 2 is gone"):
        assert said in page.text["changes"]
    assert "changes" not in page_of(first).text
    # Words that rose and fell are those that moved the topic.
    table = topics(2, 60)
    moved = table.copy()
    up, down = int(table[0].argmin()), int(table[0].argmax())
    moved[0, [up, down]] = moved[0, [down, up]]
    facts = gather([model(table), model(moved)], ["a", "b"], 5)
    (topic,) = (topic for topic in facts.topics if topic.id == 0)
    assert (topic.rose, topic.fell) == ((words(60)[up],), (words(60)[down],))


def test_models_are_compared_by_common_words():
    table = topics(4, 60)
    order = np.random.default_rng(0).permutation(60)
    shuffled = model(
        np.column_stack([table[:, order] * 0.9, np.full((4, 1), 0.1)]),
        vocabulary=Vocabulary.given([*np.array(words(60))[order], "other"]),
    )
    facts = gather([model(table), shuffled], ["a", "b"], 5)
    assert sorted(topic.id for topic in facts.topics) == [0, 1, 2, 3]
    assert facts.common_share == pytest.approx(0.9)
    assert "90.0 % of the tokens" in page_of(model(table), shuffled).text["changes"]
    assert gather([model(table), model(table)], ["a", "b"], 5).common_share is None
    # Models without words are compared by columns.
    for vocabulary in (Vocabulary.hashed(6), None):
        rows = topics(3, 64)
        both = [model(table, vocabulary=vocabulary) for table in (rows, rows[::-1])]
        facts = gather(both, ["a", "b"], 5)
        assert [(topic.id, topic.moved) for topic in facts.topics] == [(0, 0), (1, 0), (2, 0)]


def test_what_repeats_and_what_is_junk_is_said():
    table = topics(4)
    near = shifted(table[:1], 0.05)
    page = page_of(model(np.vstack([table, near, table.mean(axis=0)])))
    assert "Near-duplicates" in page.text["doubts"]
    assert re.search(r"Topic 0 and Topic 4: 0\.\d\d apart", page.text["doubts"])
    assert "Near the background: " in page.text["doubts"]
    assert "like 4" in page.text["topics"]
    assert "near the background" in page.text["topics"]
    assert "No topic repeats another" in page_of(model(table)).text["doubts"]


def test_what_is_wrong_is_refused():
    made = model(topics(4, 64))
    for n, n_labels, n_words in ((0, 0, 10), (1, 0, 10), (1, 2, 10), (1, 1, 0)):
        message = f"models={n} labels={n_labels} n_words={n_words}"
        with pytest.raises(InvalidSettingError, match=message):
            render_report([made] * n, ["m"] * n_labels, n_words=n_words)
    for vocabulary in (Vocabulary.given([f"x{w}" for w in words(64)]), None):
        other = model(topics(4, 64), vocabulary=vocabulary)
        with pytest.raises(VocabularyError, match=r"first='a' second='b' .* share=0\.0; make a"):
            render_report([made, other], ["a", "b"])


def test_a_private_model_tells_its_promise_and_places():
    page = page_of(model(topics(), privacy=private(), documents_seen=100))
    assert "Record slots\n100" in page.text["now"]
    assert "100 record slots" in page.text["making"]
    assert "documents is private" in page.text["now"]
    text = page.text["privacy"]
    # e to the 1, and e / (1 + e): both rounded up.
    assert "more than 2.719 times as likely" in text
    assert "right in at most 73.2 % of cases" in text
    assert "epsilon 1, delta 1e-06" in text
    for excluded in private()["excluded"]:
        assert excluded in text
    assert json.loads(text[text.rindex('{\n "clip_bounds"') :]) == private()
    # What its noise left.
    left = spectral(topics_asked=6, mixed_with_background=[0.1] * 4)
    page = page_of(model(topics(), privacy=private(), diagnostics=left))
    assert "of 6 requested" in page.text["now"]
    assert "4 of the 6 requested topics stand above the noise" in page.text["number"]
    assert "gave no topic that is published" in page.text["number"]
    plain = page_of(model(topics(), diagnostics=spectral()))
    assert "gave no topic that is published" not in plain.text["number"]
    user = {"privacy_unit": "user", "documents_per_user": 5, "neighboring_relation": "replace-one"}
    said = " ".join(in_plain_words({**private(), **user}))
    assert "if one user, with at most 5 documents in a stage, were replaced by another" in said
    assert "snapshots of windows" in said
    large = in_plain_words({**private(), "epsilon": 900.0})
    assert "e^900 times" in large[0]
    assert "at most 100.0 %" in large[1]
    # Beside other models it promises nothing.
    both = [model(topics()), model(topics(), privacy=private())]
    page = page_of(*both)
    assert "as a whole it is not private" in page.text["privacy"]
    assert "partly private" in page.text[""]
    assert "as a whole" not in page_of(both[1], both[1]).text["privacy"]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ({"statement": "not private"}, "learned without noise"),
        ({}, "learned without noise"),
        (seeded(), "drawn from a seed"),
        ({"statement": "private"}, "is inconsistent"),
        ({**private(), "epsilon": 0.01}, "is inconsistent"),
    ],
)
def test_what_does_not_bear_out_its_claim_promises_nothing(statement, said):
    assert not is_private(statement)
    lines = in_plain_words(statement)
    assert said in lines[0]
    assert lines[-1] == "Keep this page as secret as the documents."
    page = page_of(model(topics(), privacy=statement))
    assert "nothing is promised" in page.text["now"]
    assert "not private" in page.text[""]


def test_a_page_is_written_whole_or_not_at_all(tmp_path):
    target = tmp_path / "report.html"
    target.write_text("before")
    with pytest.raises(VocabularyError):
        write_report(target, [model(topics()), model(topics(), vocabulary=None)], ["a", "b"])
    target.unlink()
    target.mkdir()
    with pytest.raises(OSError, match="directory"):
        write_report(target, [model(topics())], ["a"])
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    # Equal models give equal bytes; a lone surrogate in a title is no obstacle.
    made = model(topics(), diagnostics=spectral())
    for name in ("a", "b"):
        write_report(tmp_path / name, [made, made], ["x", "\udcff"], title="\udcff")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert b"&#56575;" in (tmp_path / "a").read_bytes()


def test_what_is_not_known_of_a_topic_is_a_dash():
    made = model(topics(), diagnostics={"topic_npmi": [0.25, None, -0.5, 0.1]})
    shown = page_of(replace(made, prevalence=None)).text["topics"]
    assert shown.count("\N{EN DASH}") == 5
    assert "NPMI0.25" in shown
    # Where no topic has it, as with privacy, nothing is said of it.
    assert "NPMI" not in page_of(model(topics())).text["topics"]
    interval = Interval(documents=3, tokens=9, prevalence=(0.125, 0.5, 0.25, 0.125))
    for seen, said in ((4, True), (3, False)):
        page = page_of(replace(made, interval=interval, documents_seen=seen))
        assert ("lately50.0 %" in page.text["topics"]) == said
    assert "lately" not in page_of(made).text["topics"]


def test_models_are_drawn_by_what_came_between_them():
    def at(share, end):
        rest = (1 - share) / 3
        prevalence = (share, rest, rest, rest)
        interval = Interval(documents=1, tokens=9, prevalence=prevalence, start=end, end=end)
        return model(topics(), interval=interval)

    days = ("2026-03-01T00:00:00+00:00", "2026-03-02T00:00:00+00:00", "2026-03-05T00:00:00+00:00")
    made = [at(share, day) for share, day in zip((0.1, 0.7, 0.4), days, strict=True)]
    course = gather(made, "abc", 5).course
    assert course.shares[0] == (0.1, 0.7, 0.4)
    assert course.lately
    assert course.at == (0.0, 0.25, 1.0)
    assert course.labels == ("2026-03-01", "2026-03-02", "2026-03-05")
    # One that does not say it: all by what they have learned so far, under their own names.
    course = gather([made[0], replace(made[1], interval=None)], "ab", 5).course
    assert course.shares[0] == (made[0].shares[0], made[1].shares[0])
    assert (course.labels, course.lately) == (("a", "b"), False)


def test_representative_documents_are_shown_as_text():
    listed = [[{"id": "<a>", "proportion": 0.9, "text": HOSTILE[1]}], [], [], []]
    listed[1] = [{"id": "b.jsonl:7", "proportion": 0.8}]  # As without the second option.
    page = page_of(model(topics(), representative_documents=listed))
    assert "<a> 90.0 %" in page.text["topics"]
    assert "b.jsonl:7 80.0 %" in page.text["topics"]
    assert HOSTILE[1] in page.text["topics"]
    assert page.tags.count("script") == 2
