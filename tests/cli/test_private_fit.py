"""``streamlda fit --epsilon``: what a private run asks for, writes, spends, prints and refuses.

Noise in this process has the same keys in every run: what it decides is no luck.
"""

import json
import re
from itertools import pairwise

import numpy as np
import pytest

from streamlda.model.evaluation import matched_l1_error
from streamlda.model.topic_model import load
from streamlda.privacy.ledger.file import beside
from streamlda.privacy.statement import check_statement
from streamlda.storage.snapshots import Snapshots
from tests.cli.conftest import check_releases, plant, refused, run, slots_of
from tests.noise import same_keys

pytestmark = pytest.mark.usefixtures("same_noise")

EVERY = 4000

#: Records of the corpus; every tenth is no document.
SLOTS, TENTH = 9200, 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Records of planted topics, some of them rejects, with a user each; their words."""
    folder = tmp_path_factory.mktemp("private")
    plant(folder / "plain.jsonl", SLOTS, 60, truth=folder / "truth")
    lines = (folder / "plain.jsonl").read_text("ascii").splitlines()
    with (folder / "a.jsonl").open("w", encoding="ascii") as file:
        for i, line in enumerate(lines):
            values = {"text": json.loads(line)["text"], "by": f"user{i % 3000}"}
            file.write(("{" if i % TENTH == 3 else json.dumps(values)) + "\n")
    return folder


def options(folder, to, *more, every=EVERY, epsilon=8, words=True, ledger="L"):
    """Return what a private run needs, to be written to another folder."""
    return (
        *("-k", 3, "-o", to / "m", "--epsilon", epsilon, "--delta", "1e-6"),
        *("--ledger", to / ledger, "--snapshot-every", every),
        *(("--vocabulary", folder / "words") if words else ()),
        *more,
    )


def fit(folder, to, *more, code=0, **changes):
    """Make a private run over the corpus; return what was said."""
    return run("fit", folder / "a.jsonl", *options(folder, to, *more, **changes), code=code).stderr


@pytest.fixture(scope="module")
def fitted(folder):
    """A private run over the corpus: its folder, and what it printed."""
    to = folder / "fitted"
    to.mkdir()
    with same_keys():
        done = run("fit", folder / "a.jsonl", *options(folder, to, f"output.folder={to / 'all'}"))
    return to, done


def test_snapshots_are_written_paid_for_and_find_the_topics(folder, fitted):
    to, done = fitted
    report = check_releases(to)
    assert report["pending"] == report["lost"] == []
    # Two windows of four stages; the rest would not fill a third one, and is not paid for.
    slots = slots_of(report)
    assert len(slots) == 8
    assert [start for start, _ in slots[::4]] == [0, EVERY]
    assert all(a[1] == b[0] for a, b in pairwise(slots))
    streams = {each["documents"][0][0] for each in report["snapshots"]}
    assert streams == {str((folder / "a.jsonl").resolve())}
    numbered = Snapshots(to / "all")
    assert numbered.latest() == 2
    statement = load(to / "m").privacy
    assert statement == numbered.model(2).privacy
    truth = load(folder / "truth").components
    for number in (1, 2):
        model = numbered.model(number)
        check_statement(model.privacy)
        # Topics that are drawn from their prior are at about 1.
        assert matched_l1_error(truth, model.components).mean < 0.35
    stages = [[stage["first"], stage["last"] + 1] for stage in statement["stages"]]
    assert stages == slots[4:8]
    # Nothing exact about the documents is printed.
    numbers = {int(found.replace(",", "")) for found in re.findall(r"\d[\d,]*\d", done.stderr)}
    rejects = len(range(3, SLOTS, TENTH))
    assert 2 * EVERY in numbers
    assert not numbers & {rejects, SLOTS - rejects}
    assert "private and not shown" in done.stderr
    for word in ("not-json", "documents in", "tokens outside", "documents/s"):
        assert word not in done.stderr
    assert done.stdout == ""


def test_each_window_that_was_paid_for_gives_its_model_again(folder, tmp_path):
    """The file has that of the last one alone. Seeded topics keep their number and name."""
    words = " ".join(word for word, _ in load(folder / "truth").top_words(3)[1])
    said = fit(folder, tmp_path, "--seed-topic", f"mine: {words} nowhere", every=4600)
    assert "unknown=1: nowhere; they seed nothing" in said
    run("budget", tmp_path / "L", "--publish", tmp_path / "first", "--release", 1)
    models = [load(tmp_path / name) for name in ("first", "m")]
    slots = [model.privacy["cohort"] for model in models]
    assert slots == [{"first": 0, "last": 4599}, {"first": 4600, "last": 9199}]
    assert [model.names for model in models] == [["mine", None, None]] * 2
    assert {model.privacy["seeds"] for model in models} == {"public"}


def test_topics_prints_the_statement(folder, fitted):
    to, _ = fitted
    shown = run("topics", to / "m").stdout
    assert "privacy     private: epsilon 8, delta 1e-06" in shown
    assert f"slots       {EVERY:,} (public; the number of documents is private)" in shown
    assert "not covered" in shown
    described = json.loads(run("topics", to / "m", "--json").stdout)
    assert described["privacy"] == load(to / "m").privacy
    assert (described["places"], described["documents_seen"]) == (EVERY, None)
    other = run("topics", folder / "truth").stdout
    assert "privacy     not private" in other
    assert "documents   0" in other


def test_no_word_of_hashed_columns_is_kept_or_written(folder, tmp_path):
    """A run that learns words keeps them, so that the search would find them."""
    marked = folder / "marked.jsonl"
    lines = (folder / "a.jsonl").read_text("ascii").splitlines()[:EVERY]
    marked.write_text("\n".join(line.replace('", "by"', ' quixotic", "by"') for line in lines))
    found = {}
    for private in (True, False):
        to = tmp_path / str(private)
        to.mkdir()
        given = options(folder, to, words=False)
        kept = f"checkpoint.folder={to / 'c'}", f"output.folder={to / 'all'}"
        kept = ("vocabulary.hash_bits=6", *kept) if private else kept
        run("fit", marked, *(given if private else given[:4]), *kept)
        words = load(to / "m").vocabulary
        assert words.data_dependent == (not private)
        files = [path for path in to.rglob("*") if path.is_file()]
        found[private] = {p.parent.name for p in files if b"quixotic" in p.read_bytes()}
    assert found == {True: set(), False: {"False", "all", "c"}}


def test_a_second_run_is_refused_and_spends_nothing(folder, fitted):
    to, _ = fitted
    before = (to / "L").read_bytes()
    again = refused("fit", folder / "a.jsonl", *options(folder, to))
    assert "must not be in two releases" in again
    assert again.count("\n") == 1
    # A name of the stream does not make other documents of them.
    assert "two releases" in fit(folder, to, "source.stream=other", code=78)
    # Nor with another setting of the promise.
    assert "epsilon" in fit(folder, to, epsilon=9, code=78)
    assert (to / "L").read_bytes() == before


def test_users_pay_for_each_snapshot_until_nothing_is_left(folder, tmp_path):
    users = ("privacy.unit=user", "source.user_field=by", "privacy.documents_per_user=1")
    users += ("snapshots.most=1",)
    given = options(folder, tmp_path, *users, every=9000, epsilon=10)
    run("fit", folder / "a.jsonl", *given)
    statement = load(tmp_path / "m").privacy
    assert (statement["privacy_unit"], statement["documents_per_user"]) == ("user", 1)
    report = check_releases(tmp_path)
    assert len(report["snapshots"]) == 4
    # Two hundred records are left; they were not read into a release.
    assert slots_of(report)[-1][1] == 9000
    model = (tmp_path / "m").read_bytes()
    message = refused("fit", tmp_path / "gone", *given, "source.stream=others")
    for wanted in ("must fit into the privacy budget", "remaining=", "spent="):
        assert wanted in message
    assert message.count("\n") == 1
    assert len(check_releases(tmp_path)["snapshots"]) == 4
    assert (tmp_path / "m").read_bytes() == model


def chosen_words(size, slots):
    chosen = ("vocabulary.kind=private", f"vocabulary.size={size}")
    return (*chosen, f"vocabulary.documents={slots}")


def test_prefix_snapshots_take_everything_since_the_start(folder, tmp_path):
    """Without a horizon; words are a release more, of documents that are in no other."""
    more = ("privacy.mode=prefix", *chosen_words(60, 3000))
    fit(folder, tmp_path, *more, every=3000, words=False)
    check_releases(tmp_path)
    statement = load(tmp_path / "m").privacy
    assert statement["mode"] == "prefix"
    assert statement["cohort"] == {"first": 3000, "last": 8999}


@pytest.mark.parametrize(("read", "made"), [(3999, True), (3700, False)])
def test_a_stream_shorter_than_a_window(folder, tmp_path, read, made):
    """The last stage has 480 of 4000 slots: it counts if half of them were read."""
    records = (folder / "a.jsonl").read_bytes().splitlines(keepends=True)[:read]
    (tmp_path / "part.jsonl").write_bytes(b"".join(records))
    given = ("fit", tmp_path / "part.jsonl", *options(folder, tmp_path))
    said = run(*given, code=0 if made else 65).stderr
    assert (tmp_path / "m").exists() == made
    check_releases(tmp_path)
    if not made:
        assert said.count("\n") == 1
        assert f"slots={read} documents_per_snapshot={EVERY}" in said
        assert str(read - len(range(3, read, TENTH))) not in said


def test_noise_has_no_seed(folder, tmp_path):
    found = []
    for name in ("a", "b"):
        to = tmp_path / name
        to.mkdir()
        fit(folder, to, "snapshots.most=1", "--seed", 3, every=1000)
        found.append(load(to / "m").components)
    assert not np.array_equal(*found)


def test_a_source_that_cannot_be_counted_says_so(folder, tmp_path):
    records = (folder / "a.jsonl").read_bytes().splitlines(keepends=True)[:300]
    given = ("fit", "-", "--format", "jsonl", *options(folder, tmp_path))
    said = run(*given, given=b"".join(records), code=65).stderr
    assert "slots=300 " in said
    assert "slots cannot be counted before" in said
    assert "spent: epsilon=8 of 8 by releases=1 " in said
    assert "give no model" in said


@pytest.mark.parametrize("encoding", ["utf-16-le", "ascii"])
def test_standard_input_without_a_document_costs_nothing(folder, tmp_path, encoding):
    """Text that cannot be read, where it chooses the words; or that has none of them."""
    records = (folder / "plain.jsonl").read_text("ascii").splitlines()
    text = "".join(f"{json.loads(line)['text']}\n" for line in records)
    words = chosen_words(60, 500)
    if encoding == "ascii":
        (tmp_path / "words").write_text("Jupiter\nSATURN\nuranus\n", "ascii")
        words = ("--vocabulary", tmp_path / "words")
    arguments = ("fit", "-", *options(folder, tmp_path, *words, words=False))
    said = run(*arguments, given=text.encode(encoding), code=65).stderr
    assert "no record is one, got slots=" in said
    assert said.rstrip().endswith("nothing was spent")
    assert "releases    none yet" in run("budget", tmp_path / "L").stdout
    # The same ledger serves once the text can be read.
    fit(folder, tmp_path, *words if encoding == "utf-16-le" else (), words=encoding == "ascii")


def test_what_a_private_fit_must_not_have_is_refused_and_touches_nothing(folder, tmp_path):
    full = ("fit", folder / "a.jsonl", *options(folder, tmp_path))
    for wanted, arguments in (
        ("refinement_rounds needs --epsilon", (*full[:6], "privacy.refinement_rounds=0")),
        ("min_document_frequency must be left out", (*full, "vocabulary.min_document_frequency=2")),
        ("or another output", (*full, "--ledger", tmp_path / "m")),
        ("must not replace what is read", (*full, "--ledger", folder / "a.jsonl")),
        *(("or another output", (*full, "-o", path)) for path in beside(tmp_path / "L")),
        ("topics=61 words=60", (*full, "-k", 61)),
        ("must have a word of the vocabulary", (*full, "--seed-topic", "none: nowhere")),
        ("delta must be at least ten times", (*full, "--delta", "1e-60")),
    ):
        assert wanted in refused(*arguments)
        assert list(tmp_path.iterdir()) == []


def test_no_output_replaces_what_a_ledger_has(folder, fitted):
    to, _ = fitted

    def files():
        return {p: p.read_bytes() for p in sorted(to.rglob("*")) if p.is_file()}

    kept = files()
    (one, *_) = (to / "L.releases").iterdir()
    rule = "must not be where a ledger keeps its own"
    fit = ("fit", folder / "a.jsonl", "-k", 3, "-o")
    for path in (to / "L", one, one.with_name("m"), *beside(to / "L")):
        if not path.is_dir():
            assert rule in refused(*fit, path)
            assert rule in refused("report", to / "m", "-o", path)
    assert rule in refused("budget", to / "L", "--publish", one.with_name("m"))
    into = ("run", folder / "a.jsonl", "-k", 3, "http.port=0")
    for name in ("--output-folder", "--checkpoint-folder"):
        assert rule in refused(*into, name, to / "L.releases")
    assert files() == kept
