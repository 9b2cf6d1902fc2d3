"""The report in a real browser: opened as a file, with no network, and used as people would."""

import csv
import re
import struct
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from playwright.sync_api import expect

from streamlda.model.diagnostics import hellinger
from streamlda.model.over_time import Timeline
from streamlda.report import render_report
from streamlda.report.documents import DocumentSurvey
from streamlda.report.notebook import ReportPage
from streamlda.text.vocabulary import Vocabulary
from tests.browser import CONTRASTS, HOSTILE, Visit
from tests.report.test_report import hostile_model, spectral
from tests.service.planted import model, private, shifted, topics, words

pytestmark = pytest.mark.long

GROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture
def visit(browser, tmp_path):
    """Return a function that writes a report and opens it; it must ask for nothing and not fail."""
    opened = []

    def open_report(model, width=1400, scheme="light", **settings):
        path = tmp_path / f"report-{len(opened)}.html"
        ReportPage(render_report(model, **settings)).save(path)
        opened.append(Visit(browser, path.as_uri(), width, scheme, offline=True))
        return opened[-1].page

    yield open_report
    for seen in opened:
        seen.context.close()
        others = [url for url in seen.requests if not url.startswith("data:image/svg+xml;base64,")]
        assert {url.partition("#")[0] for url in others} == {seen.address}
        assert seen.errors == []


def titles(page):
    return page.locator(".card:visible h3").all_text_contents()


def test_a_report_shows_what_the_model_holds_in_drawings_and_tables(visit):
    made = model(topics(), diagnostics=spectral(), documents_seen=1234)
    page = visit(made)
    assert titles(page) == ["Topic 3", "Topic 2", "Topic 1", "Topic 0"]
    shown = page.locator("#topic-3 .word").all_text_contents()
    assert shown == [word for word, _ in made.top_words(10)[3]]
    widths = [bar.bounding_box()["width"] for bar in page.locator("#topic-3 .words rect").all()]
    chances = [p for _, p in made.top_words(10)[3]]
    np.testing.assert_allclose(
        np.divide(widths, widths[0]), np.divide(chances, chances[0]), atol=0.01
    )
    expect(page.locator("#verdict")).to_contain_text("Suggested: 3 topics.")
    expect(page.locator("#number")).to_contain_text("8 directions of the word pairs, 3 of them")
    expect(page.get_by_role("img", name=re.compile("Likeness of 4 topics"))).to_be_visible()
    for section in page.get_by_role("navigation").get_by_role("link").all():
        expect(page.locator(section.get_attribute("href"))).to_be_visible()

    def table(name):
        return page.get_by_role("region", name=name)

    for summary in page.locator("summary").all():
        summary.press("Enter")
    expect(table("Neighbours of topics").locator("tbody tr")).to_have_count(4)
    distances = table("Distances between topics").locator("td").all_text_contents()
    rows = made.components[made.order]
    np.testing.assert_allclose(
        np.array(distances, dtype=float).reshape(4, 4), hellinger(rows, rows), atol=0.006
    )
    values = table("Eigenvalues of word pairs").locator("tbody tr")
    assert values.nth(0).locator("td").all_text_contents() == ["9", "0.6"]


def test_cards_can_be_ordered_and_searched(visit):
    made = model(topics()).rename({1: "Local politics"})
    page = visit(made)
    page.get_by_label("Find").fill("politics")
    assert titles(page) == ["Topic 1: Local politics"]
    made = model(topics()).rank_words(0.4)
    page = visit(made)
    shown = page.locator("#topic-3 .word").all_text_contents()
    assert shown == [word for word, _ in made.top_words(10)[3]]
    expect(page.locator("#weight")).to_contain_text("0.40")
    made = model(topics())
    page = visit(made)
    page.get_by_label("Order").select_option("id")
    assert titles(page) == ["Topic 0", "Topic 1", "Topic 2", "Topic 3"]
    wanted = made.top_words(1)[2][0][0]
    page.get_by_label("Find").fill(wanted.upper())
    assert "Topic 2" in titles(page)
    assert len(titles(page)) < 4
    expect(page.locator("#topic-2 .hit .word").first).to_have_text(wanted)
    expect(page.locator("#found")).to_have_text(re.compile(r"[123] of 4 topics"))
    expect(page.locator(".map .hit")).to_have_count(len(titles(page)))
    expect(page.locator("#detail h3")).to_have_text(sorted(titles(page))[-1])
    page.get_by_label("Find").fill("")
    page.locator("#topic-1 .word").first.click()
    expect(page.get_by_label("Find")).to_have_value(made.top_words(1)[1][0][0])
    # A link to a card that the search has hidden brings it back.
    page.get_by_label("Find").fill("no such word")
    assert titles(page) == []
    page.get_by_role("group", name="Map of 4 topics").get_by_role("link").first.click()
    expect(page.locator("#topic-3")).to_be_visible()
    expect(page.get_by_label("Find")).to_have_value("")


def test_tables_and_drawings_can_be_saved(visit, tmp_path):
    names = words(60)
    names[topics()[1].argmax()] = "=1+1"
    made = model(topics(), vocabulary=Vocabulary.given(names))
    page = visit(replace(made, prevalence=None))

    def saved(name):
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        download.value.save_as(tmp_path / download.value.suggested_filename)
        return tmp_path / download.value.suggested_filename

    with saved("Save topics as CSV").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 40
    # No program that opens the table takes a word for a formula.
    named = [row["word"].removeprefix("'") for row in rows[:10]]
    shown = page.locator(f"#topic-{rows[0]['topic']} .word")
    assert named == shown.all_text_contents()
    assert not [row for row in rows if row["word"].startswith("=")]
    assert [row for row in rows if row["word"] == "'=1+1"]
    assert {row["prevalence"] for row in rows} == {""}
    assert {row["lambda"] for row in rows} == {"1"}
    chances = {row["word"]: float(row["probability"]) for row in rows if row["topic"] == "3"}
    assert chances == {
        word.replace("=", "'="): pytest.approx(p, rel=1e-3) for word, p in made.top_words(10)[3]
    }
    with saved("Save distances as CSV").open(encoding="utf-8") as file:
        assert len(list(csv.reader(file))) == 5
    for name in ("Save map as PNG", "Save as PNG"):
        for button in page.get_by_role("button", name=name, exact=True).all():
            with page.expect_download() as download:
                button.click()
            target = tmp_path / download.value.suggested_filename
            download.value.save_as(target)
            data = target.read_bytes()
            assert data.startswith(b"\x89PNG")
            width, height = struct.unpack(">II", data[16:24])
            assert width > 300 < height * 2
            assert len(data) > 3000


def test_words_are_only_ever_text(visit):
    page = visit(hostile_model(), title=HOSTILE[1])
    assert set(HOSTILE) <= set(page.locator("#topic-0 .word").all_text_contents())
    assert page.locator("main img, main script").count() == 0
    expect(page).to_have_title(HOSTILE[1])
    for link in page.locator(".map a").all():
        link.focus()
    assert HOSTILE[0] in page.locator("#detail .word").all_text_contents()


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1600, "light")])
def test_text_is_legible_and_fits_in_both_schemes(visit, scheme, width):
    near = shifted(topics()[:1], 0.05)
    days = Timeline(
        unit="day",
        starts=np.array([0, 86400, 172800]),
        tokens=np.arange(15.0).reshape(3, 5),
        documents=np.array([5, 6, 7]),
    )
    made = model(
        np.vstack([topics(), near]),
        timeline=days,
        privacy=private(),
        diagnostics=spectral(5, topics_asked=6, mixed_with_background=[0.1] * 5),
    )
    page = visit(made, width=width, scheme=scheme)
    page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    page.get_by_label("Find").fill(made.top_words(1)[0][0][0])
    shown = page.evaluate(CONTRASTS)
    assert len(shown) > 100
    assert [(text, ratio) for text, ratio in shown if ratio < 4.5] == []
    drawn = page.locator(".map text:visible, .plot text:not(.named):visible").all_text_contents()
    assert len({*drawn}) >= 10
    assert {*drawn} <= {text for text, _ in shown} | {""}
    level = sum(map(int, re.findall(r"\d+", page.evaluate(GROUND)))) / 3
    assert level > 230 if scheme == "light" else level < 40
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Text in drawings shrinks with them, and must still be read.
    sizes = page.evaluate(
        "[...document.querySelectorAll('svg text')].filter((t) => t.checkVisibility()"
        " && t.textContent).map((t) => t.getBoundingClientRect().height)"
    )
    assert min(sizes) >= 9


def test_what_a_screen_reader_and_a_printer_get(visit):
    page = visit(model(topics(), diagnostics=spectral()), scheme="dark")
    for role in ("banner", "main", "contentinfo", "navigation"):
        expect(page.get_by_role(role)).to_have_count(1)
    for name in ("At a glance", "Topics", "Map of topics", "How many topics"):
        expect(page.get_by_role("region", name=name, exact=True)).to_be_visible()
    unnamed = page.evaluate(
        "[...document.querySelectorAll('svg,[role=meter]')].filter((e) =>"
        " !e.getAttribute('aria-label') && e.getAttribute('aria-hidden') !== 'true').length"
    )
    assert unnamed == 0
    assert page.evaluate("document.documentElement.lang") == "en"
    levels = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3')].filter((h) => h.checkVisibility())"
        ".map((h) => Number(h.tagName[1]))"
    )
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after - before <= 1 for before, after in pairwise(levels))
    found = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(set(found)) == len(found)
    said = page.get_by_role("article", name="Topic 3", exact=True).aria_snapshot()
    assert 'heading "Topic 3" [level=3]' in said
    assert 'list "Words"' in said
    page.emulate_media(media="print")
    expect(page.locator("#controls")).to_be_hidden()
    assert page.evaluate(GROUND) == "rgb(255, 255, 255)"
    page.evaluate(
        "window.addEventListener('beforeprint', () => {"
        " window.shut = document.querySelectorAll('details:not([open])').length; })"
    )
    assert page.pdf().startswith(b"%PDF")
    assert page.evaluate("window.shut") == 0
    assert page.locator("details[open]").count() == 0


def test_shares_over_time_are_drawn_and_read_moment_by_moment(visit):
    tokens = np.array([[1.0, 2, 3, 4], [4, 3, 2, 1], [0, 0, 0, 0], [0, 0, 10, 0]])
    days = Timeline(
        unit="day",
        starts=np.array([0, 86400, 172800, 10 * 86400]),
        tokens=tokens,
        documents=np.array([5, 6, 1, 7]),
        undated=3,
        late=2,
    )
    page = visit(model(topics(), timeline=days))
    expect(page.locator("#time")).to_contain_text(
        "19 documents with a time in these bins, 3 without, 2 far"
    )
    chart = page.get_by_role("img", name="Shares of 4 topics over 4 moments")
    chart.press("ArrowLeft")
    chart.press("ArrowLeft")
    moment = page.locator("#moment")
    expect(moment).to_have_text(re.compile(r"1970-01-02 \(6 documents\): Topic 3 10\.0 %, Topic 0"))
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 50)
    expect(moment).to_have_text(re.compile(r"1970-01-11 .*Topic 2 100\.0 %"))
    # A bin without tokens is a gap, and time is to scale.
    x = [
        [float(point.split(",")[0]) for point in line.get_attribute("points").split()]
        for line in chart.locator("g[data-topic='2'] polyline").all()
    ]
    dot = float(chart.locator("g[data-topic='2'] circle").get_attribute("cx"))
    ((first, second),) = x
    assert (second - first) / (dot - first) == pytest.approx(0.1, abs=0.01)
    page.get_by_text("Shares as a table").click()
    rows = page.get_by_role("region", name="Shares of topics over time").locator("tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.nth(0).locator("td")).to_have_text(["10.0 %", "40.0 %", "\N{EN DASH}", "0.00 %"])


DRAWN = "document.querySelector('#cloud').toDataURL()"


def test_documents_are_drawn_at_their_topics_searched_and_told(visit, tmp_path):
    made = model(topics())
    texts = [" ".join([word for word, _ in made.top_words(5)[k]] * 40) for k in (0, 1, 1, 2, 3, 3)]
    titles = ["<b>zero</b>", "First", "first too", None, "third", "last"]
    survey = DocumentSurvey(made, unit="month", has_classes=True)
    times = [0.0, None, 0.0, 40 * 86400.0, 40 * 86400.0, 0.0]
    survey.add([*texts, ""], titles=[*titles, "blank"], classes=[*"abbacc", "a"], times=[*times, 0])
    page = visit(made, survey=survey)
    section = page.get_by_role("region", name="Map of documents")
    expect(section).to_contain_text("6 documents, each at the mean")
    expect(section).to_contain_text("1 document without a known word is not drawn")
    expect(page.locator("#time")).to_contain_text(
        "5 documents with a time in these bins, 1 without"
    )
    points = page.evaluate("cloud.points")
    centres = page.evaluate("cloud.centres")
    by_topic = [made.order.index(k) for k in (0, 1, 1, 2, 3, 3)]
    found = {(point[2], point[4]) for point in points}
    assert found == set(zip(by_topic, (0, 1, 1, 0, 2, 2), strict=True))
    for x, y, topic, share, _ in points:
        assert share > 90
        assert np.hypot(*np.subtract(centres[topic], (x, y))) < 0.05 * 640
    # All are drawn inside, and those of the chosen topic are not those of a search.
    assert np.all((np.array(centres) > 0) & (np.array(centres) < [640, 460]))
    hits = page.locator("#hits li")
    expect(hits).to_have_count(0)
    find = section.get_by_label("Find")
    find.fill("FIRST")
    expect(hits).to_have_count(2)
    wanted = ["First · b · Topic 1 96 % ", "first too · b · Topic 1 96 % "]
    assert sorted(hits.all_text_contents()) == wanted
    expect(page.locator("#found-documents")).to_have_text("2 of 6 documents")
    section.get_by_label("Class").select_option("c")
    expect(hits).to_have_count(0)
    find.fill("")
    expect(hits).to_have_count(2)
    first = points[page.evaluate("cloud.titles").index(titles[0])]
    before = page.evaluate(DRAWN)
    find.fill("<b>")
    section.get_by_label("Class").select_option("")
    expect(hits).to_have_count(1)
    expect(hits).to_contain_text("<b>zero</b> · a · Topic 0")
    assert page.evaluate(DRAWN) != before
    canvas = page.locator("#cloud")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x, y = (each * box["width"] / 640 for each in first[:2])
    page.mouse.move(box["x"] + x, box["y"] + y)
    expect(page.locator("#document")).to_contain_text("<b>zero</b> · a · Topic 0")
    assert page.locator("#documents b").count() == 0
    bars = page.get_by_role("img", name="Shares of 4 topics in 3 classes")
    widths = [float(bar.get_attribute("width")) for bar in bars.locator("rect[class^=rank]").all()]
    expected = survey.class_course()
    most = [max(shares[g] for shares in expected.shares) for g in range(3)]
    found = [max(widths[4 * g : 4 * g + 4]) / 360 for g in range(3)]
    np.testing.assert_allclose(found, most, atol=0.01)
    page.locator("#class-shares summary").click()
    rows = page.get_by_role("region", name="Shares of topics by class").locator("tbody tr")
    assert rows.nth(1).locator("td").nth(1).text_content() == f"{100 * expected.shares[1][1]:.1f} %"
    for name, button in (("classes", "PNG"), ("documents", "PNG"), ("classes", "CSV")):
        with page.expect_download() as download:
            page.locator(f"#{name} button", has_text=f"Save as {button}").click()
        download.value.save_as(tmp_path / "saved")
        assert button == "CSV" or (tmp_path / "saved").stat().st_size > 3000
    table = [*csv.DictReader((tmp_path / "saved").read_text("utf-8").splitlines())]
    assert "".join(row["class"] + row["documents"] for row in table) == "a2b2c2"
    assert float(table[1]["topic 1"]) == pytest.approx(expected.shares[1][1], rel=1e-3)


def test_a_map_without_titles_has_no_search_and_a_large_one_is_a_sample(visit):
    made = model(topics())
    survey, again, word = DocumentSurvey(made), DocumentSurvey(made), made.top_words(1)[0][0][0]
    for _ in range(3):
        survey.add([word] * 1000)
    again.add([word] * 3000)
    assert [point.rank for point in survey.points] == [point.rank for point in again.points]
    page = visit(made, survey=survey, width=360, scheme="dark")
    section = page.get_by_role("region", name="Map of documents")
    expect(section).to_contain_text("A uniform sample of 2,000 documents from 3,000")
    expect(section.get_by_role("searchbox")).to_have_count(0)
    expect(section.get_by_role("combobox")).to_have_count(0)
    assert len(page.evaluate("cloud.points")) == 2000
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert [ratio for _, ratio in page.evaluate(CONTRASTS) if ratio < 4.5] == []
