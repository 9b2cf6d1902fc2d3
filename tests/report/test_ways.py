"""Reports by the command and in a notebook, and progress of fits there."""

import csv
import io
import sys
import webbrowser
from html import unescape
from itertools import pairwise

import numpy as np
import pytest

import streamlda
from streamlda.estimator import StreamLDA
from streamlda.model.topic_model import load
from streamlda.privacy.statement import seeded
from streamlda.report import render_report
from streamlda.simulate import PlantedLDA
from streamlda.utils import progress as module
from tests.cli.conftest import run as run_command
from tests.report.test_report import Page
from tests.service.planted import model, private, shifted, topics


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
    with (files / "d.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("title", "text", "section", "day"))
        rows.writerows(
            (f"whisper{n}", text, "ab"[n % 2], f"2017/{1 + n % 3}/5")
            for n, text in enumerate(texts)
        )
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


@pytest.mark.parametrize("promise", [private, seeded])
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


class Screen(io.StringIO):
    """A stream that is a terminal or a file."""

    def __init__(self, *, terminal):
        super().__init__()
        self.isatty = lambda: terminal


@pytest.mark.parametrize(("verbose", "terminal"), [(0, True), (1, True), (1, False)])
def test_a_fit_shows_its_progress_on_a_terminal_when_it_is_asked_to(verbose, terminal, monkeypatch):
    monkeypatch.setattr(module, "_LEAST_SECONDS", 0.0)
    X = PlantedLDA(2, 40, seed=0).documents(300).to_csr()
    fits = []
    for asked in (verbose, 0):
        screen = Screen(terminal=terminal)
        monkeypatch.setattr(sys, "stderr", screen)
        fits.append(StreamLDA(2, refinement_passes=2, random_state=0, verbose=asked).fit(X))
        for stage in ("documents: ", "refinement passes: "):
            assert (stage in screen.getvalue()) == bool(asked and terminal)
    np.testing.assert_array_equal(fits[0].components_, fits[1].components_)
    assert fits[0].diagnostics_["refinement"]["passes"] == 2
