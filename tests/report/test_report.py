"""The report as a file, by the command and in a notebook: words of a page, and nothing beyond."""

import base64
import hashlib
import io
import json
import re
import sys
import webbrowser
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

import streamlda
from streamlda.estimator import StreamLDA
from streamlda.model.hierarchy import flat_map
from streamlda.model.over_time import Interval
from streamlda.model.topic_model import load
from streamlda.privacy.statement import state_seeds
from streamlda.report import render_report
from streamlda.report.charts import spread
from streamlda.simulate import PlantedLDA
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils import progress as module
from tests import browser
from tests.cli.conftest import run as run_command
from tests.service.planted import model, private, shifted, topics, words

HOSTILE = [*browser.HOSTILE, "</script>", '"x"']


class Page(HTMLParser):
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


def page_of(model, **settings):
    return Page(render_report(model, **settings))


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


def hostile_model(**more):
    table = topics()
    table[:, : len(HOSTILE)] += 1
    table /= table.sum(axis=1, keepdims=True)
    names = [*HOSTILE, *words(table.shape[1] - len(HOSTILE))]
    return model(table, vocabulary=Vocabulary.given(names), **more)


def test_the_page_tells_topics_numbers_and_origin():
    settings = {"seed": 7, "note": "<i>"}
    made = model(topics(), diagnostics=spectral(), documents_seen=1234, settings=settings)
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
    assert "privacy     not private" in page.text["privacy"]
    for said in ("seed 7", "note <i>", made.versions["numpy"], "1 of 4 topics <do> not"):
        assert said in page.text["making"]


def test_words_and_titles_are_only_ever_text():
    first, second, *_ = HOSTILE
    made = hostile_model(settings={first: second})
    page = page_of(made, title=second)
    assert page.tags.count("script") == 2
    assert page.tags.count("img") == 1
    assert not [a for _, attributes in page.attributes for a in attributes if a.startswith("on")]
    for name in HOSTILE:
        assert name in page.text["topics"]
    assert second in page.text[""]
    assert page.text["making"].count(first) == 1


def test_nothing_runs_but_what_the_policy_names():
    html = render_report(model(topics()))
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
    named = [pair for _, attributes in page.attributes for pair in attributes.items()]
    leads = [value for name, value in named if name in ("src", "href", "srcset", "action", "data")]
    assert leads
    assert all(address.startswith(("#", "data:image/svg+xml")) for address in leads)


def test_what_repeats_and_what_is_junk_is_said():
    table = topics(4)
    near = shifted(table[:1], 0.05)
    page = page_of(model(np.vstack([table, near, table.mean(axis=0)])))
    # The less prevalent of two that are alike; its card names the other one as the nearest.
    assert re.search(r"A copy: .*\n\s*Topic 0", page.text["doubts"])
    assert re.search(r"nearestTopic 4 0\.\d\d", page.text["topics"])
    assert "Near the background: " in page.text["doubts"]
    assert "near the background" in page.text["topics"]
    assert "No topic repeats another" in page_of(model(table)).text["doubts"]


def test_a_private_model_tells_its_promise_and_places():
    page = page_of(model(topics(), privacy=private(), documents_seen=100))
    assert "Record slots\n100" in page.text["now"]
    assert "100 record slots" in page.text["making"]
    assert "documents is private" in page.text["now"]
    text = page.text["privacy"]
    assert "epsilon 1, delta 1e-06" in text
    for excluded in private()["excluded"]:
        assert excluded in text
    assert json.loads(text[text.rindex('{\n "clip_bounds"') :]) == private()
    left = spectral(topics_asked=6, mixed_with_background=[0.1] * 4)
    page = page_of(model(topics(), privacy=private(), diagnostics=left))
    assert "of 6 requested" in page.text["now"]
    assert "4 of the 6 requested topics stand above the noise" in page.text["number"]


def test_what_does_not_bear_out_its_claim_promises_nothing():
    for statement, said in (
        ({"statement": "not private"}, "not private"),
        ({}, "not private"),
        (state_seeds(), "not private (seeded)"),
        ({"statement": "private"}, "the statement is refused"),
        ({**private(), "epsilon": 0.01}, "the statement is refused"),
    ):
        page = page_of(model(topics(), privacy=statement))
        assert said in page.text["privacy"]
        assert "Nothing is promised. Keep this page as secret as" in page.text["privacy"]
        assert "nothing is promised" in page.text["now"]
        assert "not private" in page.text[""]


def test_a_page_is_written_whole_or_not_at_all(tmp_path):
    target = tmp_path / "report.html"
    made = model(topics(), diagnostics=spectral())
    target.mkdir()
    with pytest.raises(OSError, match="directory"):
        made.visualize().save(target)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    # Equal models give equal bytes; a lone surrogate in a title is no obstacle.
    for name in ("a", "b"):
        made.visualize(title="\udcff").save(tmp_path / name)
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


def test_representative_documents_are_shown_as_text():
    listed = [[{"id": "<a>", "proportion": 0.9, "text": HOSTILE[1]}], [], [], []]
    listed[1] = [{"id": "b.jsonl:7", "proportion": 0.8}]  # As without the second option.
    page = page_of(model(topics(), representative_documents=listed))
    assert "<a> 90.0 %" in page.text["topics"]
    assert "b.jsonl:7 80.0 %" in page.text["topics"]
    assert HOSTILE[1] in page.text["topics"]
    assert page.tags.count("script") == 2


def distances(points):
    return np.linalg.norm(points[:, None] - points[None], axis=2)


def test_a_flat_map_of_flat_points_keeps_their_distances():
    flat = distances(np.random.default_rng(0).normal(size=(12, 2)))
    places, explained = flat_map(flat)
    np.testing.assert_allclose(distances(places), flat, atol=1e-9)
    assert sum(explained) == pytest.approx(1)
    np.testing.assert_allclose(explained, (places**2).sum(axis=0) / (places**2).sum())
    np.testing.assert_array_equal(places, flat_map(flat)[0])
    assert flat_map(distances(np.random.default_rng(1).normal(size=(12, 6))))[1][0] < 0.9
    assert flat_map(np.zeros((1, 1)))[1].tolist() == [0.0, 0.0]


def test_circles_do_not_cover_each_other_and_stay_inside():
    radii = np.linspace(10, 40, 9)
    for positions in (np.zeros((9, 2)), np.random.default_rng(0).normal(size=(9, 2))):
        at = spread(positions, radii, 640, 460)
        apart = distances(at) + np.eye(9) * 1e9
        assert (apart - radii[:, None] - radii[None]).min() > 0
        assert (at - radii[:, None]).min() >= 0
        assert (np.array([640, 460]) - at - radii[:, None]).min() >= 0


def run(*arguments, code=0):
    return run_command("report", *arguments, code=code)


@pytest.fixture
def files(tmp_path):
    for name, amount in (("old", 0.0), ("new", 0.2)):
        model(shifted(topics(), amount)).save(tmp_path / f"{name}.model")
    return tmp_path


def test_the_command_writes_a_page(files):
    target = files / "r.html"
    said = run(files / "new.model", "-o", target, "--title", "T", "--words", 3)
    assert said.stderr == f"4 topics\nreport: {target}\n"
    assert said.stdout == ""
    html = target.read_text("utf-8")
    page = Page(html)
    assert page.text[""].count("T\n") == 2
    assert len(page.all("li")) < 100
    # Where files lie on this machine is nobody's business.
    assert str(files) not in html
    assert run(files / "old.model", "-o", target, "-q").stderr == ""
    assert Page(target.read_text("utf-8")).text[""].count("old\n") == 2


def test_documents_are_drawn_without_their_text_unless_it_is_named(files):
    vocabulary = load(files / "new.model").vocabulary
    texts = [f"{a} {b} hush{n}" for n, (a, b) in enumerate(pairwise(vocabulary.words))]
    rows = [f"whisper{n},{text},{'ab'[n % 2]},2017/{1 + n % 3}/5" for n, text in enumerate(texts)]
    (files / "d.csv").write_text("\n".join(["title,text,section,day", *rows]), "utf-8")
    given = (files / "new.model", "--documents", files / "d.csv", "-o", files / "r.html")
    run(*given, "--class-field", "section", "--time-field", "day", "--time-bins", "month")
    html = (files / "r.html").read_text("utf-8")
    page = Page(html)
    assert f"{len(texts)} documents, each at the mean" in page.text["documents"]
    assert "Mean share of each topic in the documents of a class" in page.text["classes"]
    assert "Mean share of each topic in the documents of a month" in page.text["time"]
    assert "hush" not in html
    assert "whisper" not in html
    assert f"from the model and {len(texts)} documents" in html
    run(*given, "--id-field", "title")
    html = (files / "r.html").read_text("utf-8")
    assert "hush" not in html
    assert "whisper7" in html
    assert "class-shares" not in Page(html).text["documents"]
    said = run(files / "new.model", "--class-field", "section", "-o", files / "r.html", code=2)
    assert "need --documents FILE" in said.stderr


@pytest.mark.parametrize("promise", [private, state_seeds])
def test_the_report_of_a_private_model_has_no_documents(files, promise):
    model(topics(), privacy=promise()).save(files / "private.model")
    (files / "d.txt").write_text("one\n")
    target = files / "r.html"
    said = run(files / "private.model", "--documents", files / "d.txt", "-o", target, code=78)
    assert "the report of a private model has no documents" in said.stderr
    assert not target.exists()
    run(files / "private.model", "-o", target)
    assert "documents" not in Page(target.read_text("utf-8")).text


def test_the_report_of_a_model_is_shown_in_a_frame_and_saved(tmp_path, monkeypatch):
    made = model(topics())
    found = made.visualize(title="T & <t>", n_words=3)
    assert found.html == render_report(made, title="T & <t>", n_words=3)
    frame = found._repr_html_()
    assert frame.count("<") == 2
    inside = frame.partition('srcdoc="')[2].partition('"')[0]
    assert unescape(inside) == found.html
    assert 'sandbox="allow-scripts allow-downloads"' in frame
    found.save(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_text("utf-8") == found.html
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    path = streamlda.visualize(made).show()
    assert opened == [path.as_uri()]
    assert path.read_text("utf-8") == streamlda.visualize(made).html
    assert repr(found).startswith("<report of ")


@pytest.mark.parametrize(("verbose", "terminal"), [(0, True), (1, True), (1, False)])
def test_a_fit_shows_its_progress_on_a_terminal_when_it_is_asked_to(verbose, terminal, monkeypatch):
    monkeypatch.setattr(module, "_LEAST_SECONDS", 0.0)
    X = PlantedLDA(2, 40, seed=0).documents(300).to_csr()
    fits = []
    for asked in (verbose, 0):
        screen = io.StringIO()
        screen.isatty = lambda: terminal
        monkeypatch.setattr(sys, "stderr", screen)
        fits.append(StreamLDA(2, refinement_passes=2, random_state=0, verbose=asked).fit(X))
        for stage in ("documents: ", "refinement passes: "):
            assert (stage in screen.getvalue()) == bool(asked and terminal)
    np.testing.assert_array_equal(fits[0].components_, fits[1].components_)
    assert fits[0].diagnostics_["refinement"]["passes"] == 2
