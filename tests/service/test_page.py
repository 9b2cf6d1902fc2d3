"""The page in a real browser, on a server of the daemon."""

from contextlib import ExitStack

import pytest
from playwright.sync_api import expect

from streamlda.service import messages as m
from streamlda.service.http import Server, make_app
from streamlda.service.status import Status
from streamlda.storage.snapshots import Snapshots
from streamlda.text.vocabulary import Vocabulary
from tests.browser import HOSTILE, Visit
from tests.service.planted import budget, model, outcomes, private, topics, words
from tests.service.test_http import TOKEN


@pytest.fixture
def status():
    made = Status(private=False, stream="kafka: planted", memory_limit_bytes=2**30)
    made.note(not_ready="", phase="learning", places=1_234_000, places_left=66_000)
    made.note(lag={0: 1500, 1: None}, resident_bytes=2**28)
    return made


@pytest.fixture
def snapshots(tmp_path):
    made = Snapshots(tmp_path / "snapshots")
    made.publish(1, model(topics(), documents_seen=1000))
    return made


class DaemonPage(Visit):
    def card(self, title):
        return self.page.get_by_role("article", name=title, exact=True)

    def words(self, title):
        return self.card(title).locator(".word").all_text_contents()

    def titles(self):
        return self.page.locator(".card h3").all_text_contents()

    def has(self, **texts):
        for name, text in texts.items():
            expect(self.page.locator(f"#{name.replace('_', '-')}")).to_have_text(text)

    def has_cards(self):
        expect(self.page.locator(".card")).to_have_count(4)


@pytest.fixture
def visit(browser, status, snapshots):
    """Return a function that serves a daemon and opens its page; it must have kept quiet."""
    with ExitStack() as opened:

        def open_page(
            *, is_private=False, width=1400, scheme="light", quiet=True, cards=True, **tokens
        ):
            tokens = {"token": None} | tokens
            server = Server(make_app(status, snapshots, private=is_private, **tokens))
            made = DaemonPage(browser, f"http://127.0.0.1:{server.port}/", width, scheme)
            opened.callback(end, made, server, quiet)
            if cards:
                made.has_cards()
            return made

        def end(made, server, quiet):
            made.context.close()
            server.stop()
            assert [url for url in made.requests if not url.startswith(made.address)] == []
            assert not quiet or made.errors == []

        yield open_page


def test_the_page_shows_the_topics_of_a_model(visit, snapshots):
    seen = visit()
    assert seen.titles() == ["Topic 4", "Topic 3", "Topic 2", "Topic 1"]
    for topic in snapshots.topics(1)["topics"]:
        card = seen.card(f"Topic {topic['id']}")
        assert seen.words(f"Topic {topic['id']}") == [word for word, _ in topic["words"]]
        expect(card.locator(".share")).to_have_text(f"{100 * topic['prevalence']:.1f} %")
        bars = card.locator(".size")
        widths = [bar.bounding_box()["width"] for bar in bars.all()]
        shares = [probability for _, probability in topic["words"]]
        full = widths[0] / shares[0]
        assert widths == pytest.approx([share * full for share in shares], abs=1)
    expect(seen.page.locator("#about")).to_contain_text("Snapshot 1")
    expect(seen.page.locator("#about")).to_contain_text("4 topics from 1,000 documents")
    expect(seen.page.locator("#moves")).to_be_hidden()
    snapshots.rename({2: HOSTILE[0], 4: "sport"})
    seen.page.reload()
    seen.has_cards()
    named = [title.translate(dict.fromkeys((0x2068, 0x2069))) for title in seen.titles()]
    assert named == ["Topic 4: sport", "Topic 3", f"Topic 2: {HOSTILE[0]}", "Topic 1"]


@pytest.mark.long
def test_the_page_shows_how_the_daemon_fares(visit, status, snapshots):
    status.note_snapshot(snapshots.summary(1))
    status.note(budget=budget(2.0, 1.5, 2.0, 1e-9))
    status.note_checkpoint(0.12, 5 * 2**20)
    seen = visit()
    seen.has(link="live", stream="kafka: planted", phase="learning", lag="1.5K", left="66K")
    seen.has(lag_note="records in 2 partitions, 1 not known", memory="256 MiB", rate="0.0")
    seen.has(saved_note="5.0 MiB in 0.12 s", unused="0", unused_note="none")
    spent = seen.page.get_by_role("meter", name="Privacy budget spent")
    expect(spent).to_have_attribute("aria-valuenow", "0.5")
    expect(spent).to_have_attribute("aria-valuetext", "epsilon 1.50 of 2.00 left")
    expect(spent).not_to_have_attribute("data-full", "")
    status.note(budget=budget(2.0, 0.0, 2.0, 1e-9))
    expect(spent).to_have_attribute("aria-valuetext", "epsilon 0.00 of 2.00 left")
    expect(spent).to_have_attribute("data-full", "")
    expect(seen.page.get_by_text("They are not private")).to_be_visible()
    status.note(documents=outcomes(), rejects={}, releases=0)
    found = outcomes(learned=5000, rejected=3, short=40)
    status.note(documents=found, rejects={"not-json": 2, "too-long": 1}, releases=0)
    expect(seen.page.locator("#rate")).not_to_have_text("0.0")
    status.note(lost={"records": 25}, lag={0: 2048}, lag_unit="bytes", in_no_bin=(0, 0, 12))
    seen.page.reload()
    notes = ["too short 40, not json 2, too long 1", "used, but far from the time bins kept: 12"]
    seen.has(unused="43", unused_note="; ".join([*notes, "lost: 25 records"]))
    seen.has(lag="2.0 KiB", lag_note="in files")
    status.note(lag={3: 5}, lag_unit="records")
    status.note_group(partitions=[0, 3], waiting=[5], generation=7, lease=True)
    seen.page.reload()
    shared = ["here: 0, 3", "to come: 5", "generation 7", "makes the snapshots of all daemons"]
    seen.has(lag_note="; ".join(["records in 1 partition", *shared]))
    status.show([m.ShowStall("source", "KafkaTimeoutError", 60.0)])
    expect(seen.page.locator("#phase")).to_contain_text("not ready")
    seen.has(link="source away", lag="\N{EN DASH}")
    expect(seen.page.locator("#trouble")).to_contain_text("Source away since")
    expect(seen.page.locator("#trouble")).to_contain_text("(KafkaTimeoutError).")
    status.show([m.ShowRecovery("source", 1.0)])
    expect(seen.page.locator("#link")).to_have_text("live")
    expect(seen.page.locator("#trouble")).to_be_hidden()


def test_words_and_documents_are_only_ever_text(visit, snapshots):
    table = topics()
    table[:, :5] += 1
    table /= table.sum(axis=1, keepdims=True)
    first = {"id": "a.txt:7", "proportion": 0.875, "text": HOSTILE[0]}
    others = [{"id": f"{HOSTILE[3]} {n}", "proportion": 0.5} for n in (1, 2)]
    documents = [[first], [], [], others]
    named = Vocabulary.given([*HOSTILE, *words(55)])
    # Whose topics are others: these would have other numbers.
    snapshots.path(1).unlink()
    snapshots.publish(2, model(table, vocabulary=named, representative_documents=documents))
    seen = visit()
    shown = seen.page.locator(".card").first.locator(".word").all_text_contents()
    assert set(HOSTILE) <= set(shown)
    assert seen.page.locator(".card img, .card script").count() == 0
    region = seen.page.get_by_role("region", name="Documents with most of this topic")
    for number, held in enumerate(documents, 1):
        seen.card(f"Topic {number}").get_by_role("button").click()
        expect(seen.page.locator("#topic-title")).to_have_text(f"Topic {number}")
        lines = [f"{d['id']} {100 * d['proportion']:.1f} %{d.get('text', '')}" for d in held]
        expect(region.locator("li")).to_have_text(lines)
        expect(region).to_be_visible(visible=bool(held))
        seen.page.locator("#close").click()


@pytest.mark.long
def test_a_viewer_of_a_private_daemon_sees_topics_and_no_counts(visit, snapshots):
    documents = [[{"id": "a", "proportion": 0.5, "text": "b"}]] * 4
    seen = visit(
        is_private=True, token=TOKEN, operator_token="of operators", quiet=False, cards=False
    )
    field = seen.page.get_by_label("Token", exact=True)
    expect(field).to_be_focused()
    field.fill("wrong")
    field.press("Enter")
    expect(seen.page.get_by_role("alert")).to_have_text("This is not the token of the daemon.")
    field.fill(TOKEN)
    field.press("Enter")
    seen.has(link="live", privacy="private snapshots")
    expect(seen.page.locator("#about")).to_contain_text("1 snapshot is not private")
    expect(field).to_be_hidden()
    made = model(topics(), privacy=private(), representative_documents=documents)
    snapshots.publish(2, made)
    seen.has_cards()
    slots = "Snapshot 2, record slots {first} to {last}"
    expect(seen.page.locator("#moment")).to_have_text(slots.format_map(made.privacy["cohort"]))
    seen.page.get_by_text("Privacy promise").click()
    expect(seen.page.get_by_role("region", name="Privacy statement")).to_contain_text("epsilon")
    seen.card("Topic 1").get_by_role("button").click()
    expect(seen.page.locator("#topic-title")).to_have_text("Topic 1")
    region = seen.page.get_by_role("region", name="Documents with most of this topic")
    expect(region).not_to_be_visible()
    expect(seen.page.locator("#now")).to_be_hidden()
    kept = "[localStorage.length, sessionStorage.length, document.cookie, document.title]"
    assert seen.page.evaluate(kept) == [0, 0, "", "streamlda"]
    assert TOKEN not in seen.page.content()
    assert not [url for url in seen.requests if "horse" in url]
    seen.page.reload()
    field.fill("of operators")
    field.press("Enter")
    seen.has_cards()
    expect(seen.page.locator("#now")).to_be_visible()
