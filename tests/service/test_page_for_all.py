"""Who may see the page, and how: tokens, viewers, schemes, keyboards and screen readers."""

import pytest
from playwright.sync_api import expect

from streamlda.service.http import Server, make_app
from tests.service.planted import model, private, shifted, topics
from tests.service.test_page import snapshots, status, visit
from tests.service.web import TOKEN

__all__ = ["snapshots", "status", "visit"]


def test_a_viewer_of_a_private_daemon_sees_topics_and_no_counts(visit, snapshots):
    snapshots.path(1).unlink()
    seen = visit(
        is_private=True, token=TOKEN, operator_token="of operators", quiet=False, cards=False
    )
    field = seen.page.get_by_label("Token", exact=True)
    field.fill(TOKEN)
    field.press("Enter")
    seen.has(link="live", privacy="private snapshots")
    expect(seen.page.locator("#about")).to_contain_text("shown to operators only")
    snapshots.publish(2, model(topics(), privacy=private()))
    seen.has_cards()
    expect(seen.page.locator("#now")).to_be_hidden()
    seen.page.reload()
    field.fill("of operators")
    field.press("Enter")
    seen.has_cards()
    expect(seen.page.locator("#now")).to_be_visible()


@pytest.mark.long
def test_a_daemon_that_went_is_said_to_be_gone_and_found_when_it_is_back(visit, status, snapshots):
    seen = visit(quiet=False)
    seen.server.stop()
    alert, link = seen.page.get_by_role("alert"), seen.page.locator("#link")
    expect(alert).to_contain_text("does not answer", timeout=10_000)
    expect(link).to_have_text("no answer")
    app = make_app(status, snapshots, private=False, token=None)
    again = Server(app, port=seen.server.port)
    try:
        expect(link).to_have_text("live", timeout=10_000)
        expect(alert).to_be_hidden()
    finally:
        again.stop()


@pytest.mark.long
def test_all_can_be_done_from_the_keyboard(visit, snapshots):
    snapshots.publish(2, model(shifted(topics(), 0.2)))
    seen = visit()
    page = seen.page
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the topics")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#topics")).to_be_focused()
    page.keyboard.press("Tab")
    order = page.get_by_label("Order")
    expect(order).to_be_focused()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    expect(order).to_have_value("id")
    assert seen.titles() == ["Topic 1", "Topic 2", "Topic 3", "Topic 4"]
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    stops = []
    for _ in range(7):
        page.keyboard.press("Tab")
        assert page.evaluate(outline) == "solid"
        stops.append(page.evaluate("document.activeElement.textContent.trim()"))
    assert stops[:4] == ["Topic 1", "Topic 2", "Topic 3", "Topic 4"]
    assert stops[4:5] == ["Privacy promise"]
    assert stops[5:] == ["metrics", "snapshots"]
    page.get_by_text("As a table").press("Enter")
    expect(page.locator("table")).to_be_visible()
