"""Models and fits in a notebook: the report as a value, progress."""

import io
import sys
import webbrowser
from html import unescape

import numpy as np
import pytest

import streamlda
from streamlda.estimator import StreamLDA
from streamlda.report import render_report
from streamlda.simulate import PlantedLDA
from streamlda.utils import progress as module
from tests.service.planted import model, topics


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
