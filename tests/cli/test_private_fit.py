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
from tests.cli.test_fit import fail_behind
from tests.conftest import same_keys

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
    return (
        *("-k", 3, "-o", to / "m", "--epsilon", epsilon, "--delta", "1e-6"),
        *("--ledger", to / ledger, "--snapshot-every", every),
        *(("--vocabulary", folder / "words") if words else ()),
        *more,
    )


def fit(folder, to, *more, code=0, **changes):
    return run("fit", folder / "a.jsonl", *options(folder, to, *more, **changes), code=code).stderr


@pytest.fixture(scope="module")
def fitted(folder):
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
    assert "in two releases" in again
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
    for wanted in ("more than the privacy budget", "remaining=", "spent="):
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
    assert "no record is a document of 3 known words or more, got slots=" in said
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
        ("replace what is read", (*full, "--ledger", folder / "a.jsonl")),
        *(("or another output", (*full, "-o", path)) for path in beside(tmp_path / "L")),
        ("topics=61 words=60", (*full, "-k", 61)),
        ("has no word of the vocabulary", (*full, "--seed-topic", "none: nowhere")),
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
    rule = "where a ledger keeps its own"
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


@pytest.mark.statistical
def test_words_that_one_document_has_are_never_published(folder, tmp_path):
    """Under other keys a word of one of 5,000 documents is kept in 5000 delta, 0.5 %, at most."""
    source = tmp_path / "u.txt"
    with (folder / "plain.jsonl").open(encoding="ascii") as file, source.open("w") as out:
        for i, line in enumerate(file):
            lone = "".join(chr(97 + int(digit)) for digit in f"{i:06d}")
            out.write(f"{json.loads(line)['text']} lone{lone}\n")
    given = options(folder, tmp_path, *chosen_words(50, 5000), words=False)
    done = run("fit", source, *given)
    model = load(tmp_path / "m")
    words = set(model.vocabulary.words)
    assert 20 < len(words) <= 50
    assert words <= set(load(folder / "truth").vocabulary.words)
    assert "words (private selection)" in done.stderr
    for path in [tmp_path / "m", *(tmp_path / "L.releases").iterdir(), tmp_path / "L"]:
        assert b"lone" not in path.read_bytes()
    learned = ("vocabulary.size=9000", "vocabulary.min_document_frequency=1")
    run("fit", source, "-k", 3, "-o", tmp_path / "open", *learned)
    assert b"lone" in (tmp_path / "open").read_bytes()
    check_statement(model.privacy)
    assert model.privacy["vocabulary"] == "private selection"
    assert model.privacy["delta"] == pytest.approx(1e-6, rel=1e-12)
    # Documents that chose the words are in no other release, and no others are in this one.
    report = check_releases(tmp_path)
    assert [each["description"] for each in report["snapshots"][:2]] == ["words", "norms"]
    slots = slots_of(report)
    assert slots[0] == [0, 5000]
    assert slots[1][0] == model.privacy["cohort"]["first"] == 5000
    assert report["budget"]["delta"] == 1e-6
    words, *others = (each["set_aside"] for each in report["snapshots"])
    assert model.vocabulary.selection["delta"] < words < 1e-6
    assert 0 < max(others) < 1e-9
    assert "in two releases" in refused("fit", source, *given)


@pytest.mark.parametrize(
    ("slots", "wanted", "spent"),
    [
        (20, "found no word", 1),
        (5201, "slots=9200 documents_per_snapshot=4000 vocabulary_documents=5201", 0),
    ],
)
def test_a_choice_of_words_that_cannot_be_made(folder, tmp_path, slots, wanted, spent):
    said = fit(folder, tmp_path, *chosen_words(60, slots), epsilon=1, words=False, code=65)
    assert wanted in said
    assert ("nothing was spent" in said) == (not spent)
    assert bool(re.search(r"spent: epsilon=[\d.]+ of 1 by releases=1 ", said)) == bool(spent)
    # What is expected, with a warning, stands before what is paid for.
    assert said.count("\n") == 1 + 3 * spent
    assert len(check_releases(tmp_path)["snapshots"]) == spent
    assert not (tmp_path / "m").exists()


def test_a_refused_run_may_be_corrected(folder, tmp_path):
    """With the same ledger: nothing was spent."""
    words = chosen_words(200, 4000)
    assert "room=5200" in fit(folder, tmp_path, *words, every=5201, words=False, code=65)
    fit(folder, tmp_path, *words, every=5200, words=False)
    report = check_releases(tmp_path)
    assert slots_of(report)[-1][1] == 9200


@pytest.mark.statistical
def test_a_wrong_name_of_a_field_costs_the_first_stage_and_no_window(folder, tmp_path):
    """Under one of a thousand keys, noise passes for documents and the window is read on."""
    field, records = ("--text-field", "body"), (folder / "a.jsonl").read_text("ascii")
    said = fit(folder, tmp_path, *field, code=65)
    assert "no record is a document of 3 known words" in said
    assert "nothing was spent" in said
    body = " ".join((folder / "words").read_text("ascii").split()[:3])
    (tmp_path / "b.jsonl").write_text(records + json.dumps({"body": body}) + "\n", "ascii")
    given = options(folder, tmp_path, *field)
    said = run("fit", tmp_path / "b.jsonl", *given, code=65).stderr
    assert "no documents above the noise" in said
    assert "source.text_field" in said
    ((first, last),) = slots_of(check_releases(tmp_path))
    assert first == 0
    assert last <= EVERY // 10
    assert not (tmp_path / "m").exists()


def test_a_run_begins_with_a_public_model_and_its_words(folder, tmp_path):
    truth = folder / "truth"
    fit(folder, tmp_path, f"privacy.public_model={truth}", words=False, epsilon=1)
    model, public = load(tmp_path / "m"), load(truth)
    assert model.vocabulary.words == public.vocabulary.words
    check_statement(model.privacy)
    assert model.privacy["public_model"] == public.digest
    assert model.privacy["vocabulary"] == "public"
    assert matched_l1_error(public.components, model.components).mean < 0.1
    report = check_releases(tmp_path)
    assert [start for start, _ in slots_of(report)[::2]] == [0, EVERY]
    assert len(slots_of(report)) == 4
    said = run("topics", tmp_path / "m").stdout
    assert f"begun with  public model {public.digest}" in said


def test_a_public_model_of_no_use_is_refused_and_spends_nothing(folder, tmp_path):
    public = f"privacy.public_model={folder / 'truth'}"
    for words, rule, more in (
        (False, "must have its own words", ("vocabulary.hash_bits=8",)),
        (True, "topics=3 n_components=2", ("-k", 2)),
    ):
        assert rule in fit(folder, tmp_path, public, *more, words=words, epsilon=1, code=78)
        assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]


@pytest.mark.parametrize(("every", "made"), [(2000, True), (4200, False)])
def test_a_source_that_fails_ends_a_run_without_a_last_snapshot(
    folder, tmp_path, monkeypatch, every, made
):
    """Slots up to the failure are read; with 4200, most of the last stage."""
    fail_behind(monkeypatch, SLOTS + 4096)
    said = fit(folder, tmp_path, every=every, code=74)
    assert "error: a source must continue answering" in said
    assert (tmp_path / "m").exists() == made
    assert ("no snapshot was made" in said) != made
    assert ("spent: epsilon=8 of 8 by releases=3" in said) != made
    assert check_releases(tmp_path)["generation"] == (9 if made else 3)
    offered = "released='norms, pairs, triple norms' missing='triples'" not in said
    assert offered == made


def test_a_run_that_fails_in_a_round_names_the_command_that_gives_its_model(
    folder, tmp_path, monkeypatch
):
    """It is private, says what is missing, costs nothing, and replaces nothing."""
    with monkeypatch.context() as patch:
        # In the last stage, of 1.5 % of the window; the slots were counted before.
        fail_behind(patch, SLOTS + EVERY - 20)
        said = fit(folder, tmp_path, "privacy.refinement_rounds=1", "snapshots.most=1", code=74)
    command = re.search(r"streamlda (budget \S+) --publish MODEL$", said, re.MULTILINE)
    assert "(incomplete, without choice)" in said
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    model_file = tmp_path / "model"
    done = run(*command[1].split(), "--publish", model_file)
    assert "incomplete  without choice" in done.stderr
    assert "privacy     private: epsilon 8, delta 1e-06" in done.stderr
    assert {path: path.read_bytes() for path in before} == before
    model = load(model_file)
    check_statement(model.privacy)
    assert model.vocabulary.words == load(folder / "truth").vocabulary.words
    assert model.settings["stream"].startswith("a.jsonl, ")
    assert matched_l1_error(load(folder / "truth").components, model.components).mean < 0.35
    shown = run("topics", model_file).stdout
    assert "incomplete  without choice" in shown
    assert "would replace a file" in refused(*command[1].split(), "--publish", model_file)
    # What a second run is refused by leads there, too.
    again = fit(folder, tmp_path, every=7000, code=78)
    assert f"streamlda budget {tmp_path / 'L'}" in again
