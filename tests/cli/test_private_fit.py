"""``streamlda fit --epsilon``: what a private run asks for, writes, spends, prints and refuses.

Noise in this process has the same keys in every run: what it decides is no luck.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from streamlda.model.evaluation import matched_l1_error
from streamlda.model.topic_model import load
from streamlda.privacy.ledger.file import beside
from streamlda.privacy.statement import check_statement
from streamlda.run.parts import stream_name
from streamlda.settings.load import load_settings
from streamlda.storage.snapshots import Snapshots
from tests.cli.conftest import SIZES, check_releases, refused, run, slots_of
from tests.cli.test_fit import fail_behind
from tests.cli.test_process import wait_until
from tests.noise import same_keys

pytestmark = pytest.mark.usefixtures("same_noise")

EVERY = 4000

#: Records of the corpus; every tenth is no document.
SLOTS, TENTH = 9200, 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Records of planted topics, some of them rejects, with a user each; their words."""
    folder = tmp_path_factory.mktemp("private")
    plain = ("-n", SLOTS, "-o", folder / "plain.jsonl", "--truth", folder / "truth")
    run("simulate", *SIZES, 60, *plain)
    lines = (folder / "plain.jsonl").read_text("ascii").splitlines()
    with (folder / "a.jsonl").open("w", encoding="ascii") as file:
        for i, line in enumerate(lines):
            values = {"text": json.loads(line)["text"], "by": f"user{i % 3000}"}
            file.write(("{" if i % TENTH == 3 else json.dumps(values)) + "\n")
    words = load(folder / "truth").vocabulary.words
    (folder / "words").write_text("\n".join(words), "ascii")
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
        done = run("fit", folder / "a.jsonl", *options(folder, to, "--output-folder", to / "all"))
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


def test_no_window_is_paid_for_and_then_overwritten(folder, tmp_path):
    """By the next one, nor by a later run; what is not private goes as before."""
    said = fit(folder, tmp_path, every=4600)
    kept = tmp_path / "m.snapshots"
    assert f"earlier snapshots: {kept}" in said
    newest = (tmp_path / "m").read_bytes()
    assert Snapshots(kept).latest() == 1
    slots = Snapshots(kept).model(1).privacy["cohort"], load(tmp_path / "m").privacy["cohort"]
    assert slots == ({"first": 0, "last": 4599}, {"first": 4600, "last": 9199})
    for number in (2, 3):
        other = tmp_path / f"{number}.jsonl"
        run("simulate", *SIZES, 60, "-n", 1000, "--seed", number, "-o", other)
        run("fit", other, *options(folder, tmp_path, every=1000))
        assert Snapshots(kept).latest() == number
    assert Snapshots(kept).path(2).read_bytes() == newest
    run("fit", folder / "plain.jsonl", "-k", 3, "-o", tmp_path / "n", "--max-documents", 500)
    run("fit", folder / "plain.jsonl", "-k", 3, "-o", tmp_path / "n", "--max-documents", 600)
    assert not (tmp_path / "n.snapshots").exists()


def test_topics_prints_the_statement(folder, fitted):
    to, _ = fitted
    shown = run("topics", to / "m").stdout
    assert "privacy     private: epsilon 8, delta 1e-06" in shown
    assert f"slots       {EVERY:,} (the number of documents is private)" in shown
    assert "not covered" in shown
    described = json.loads(run("topics", to / "m", "--json").stdout)
    assert described["privacy"] == load(to / "m").privacy
    assert (described["places"], described["documents_seen"]) == (EVERY, None)
    other = run("topics", folder / "truth").stdout
    assert "privacy     not private" in other
    assert "documents   0" in other


def test_no_word_of_hashed_columns_is_kept_or_written(folder, tmp_path):
    """Without privacy the same run keeps the words, so that the search would find them."""
    marked = folder / "marked.jsonl"
    lines = (folder / "a.jsonl").read_text("ascii").splitlines()[:EVERY]
    marked.write_text("\n".join(line.replace('", "by"', ' quixotic", "by"') for line in lines))
    found = {}
    for private in (True, False):
        to = tmp_path / str(private)
        to.mkdir()
        given = options(folder, to, words=False)
        kept = ("--hash-bits", 6, "--checkpoint-folder", to / "c", "--output-folder", to / "all")
        run("fit", marked, *(given if private else given[:4]), *kept)
        words = load(to / "m").vocabulary
        assert (words.names is None, words.data_dependent) == (private, not private)
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
    assert "two releases" in fit(folder, to, "--stream", "other", code=78)
    # Nor with another setting of the promise.
    assert "epsilon" in fit(folder, to, epsilon=9, code=78)
    assert (to / "L").read_bytes() == before


def test_the_same_command_with_another_output_makes_the_same_topics_and_pays_nothing(
    folder, tmp_path
):
    said = fit(folder, tmp_path)
    before = (tmp_path / "L").read_bytes()
    other = ("--output", tmp_path / "other")
    assert "are taken up, not paid again" in fit(folder, tmp_path, *other)
    assert "are taken up" not in said
    assert (tmp_path / "L").read_bytes() == before
    one, again = load(tmp_path / "m"), load(tmp_path / "other")
    assert np.array_equal(one.components, again.components)
    assert "must not be in two releases" in fit(folder, tmp_path, *other, code=78)


def test_a_model_that_is_out_tells_that_its_ledger_is_gone(folder, fitted, tmp_path):
    to, _ = fitted
    shutil.copy(to / "m", tmp_path / "m")
    refused = fit(folder, tmp_path, code=78)
    assert "a new ledger must not begin beside what another one left" in refused
    assert f"left='{tmp_path}/m'" in refused
    assert not (tmp_path / "L").exists()


def test_users_pay_for_each_snapshot_until_nothing_is_left(folder, tmp_path):
    users = ("--unit", "user", "--user-field", "by", "--documents-per-user", 1, "--snapshots", 1)
    given = options(folder, tmp_path, *users, every=9000, epsilon=10)
    run("fit", folder / "a.jsonl", *given)
    statement = load(tmp_path / "m").privacy
    assert (statement["privacy_unit"], statement["documents_per_user"]) == ("user", 1)
    report = check_releases(tmp_path)
    assert len(report["snapshots"]) == 4
    # Two hundred records are left; they were not read into a release.
    assert slots_of(report)[-1][1] == 9000
    model = (tmp_path / "m").read_bytes()
    message = refused("fit", tmp_path / "gone", *given, "--stream", "others")
    for wanted in ("must fit into the privacy budget", "remaining=", "spent="):
        assert wanted in message
    assert message.count("\n") == 1
    assert len(check_releases(tmp_path)["snapshots"]) == 4
    assert (tmp_path / "m").read_bytes() == model


def chosen_words(size, slots):
    return (
        *("--vocabulary-kind", "private", "--vocabulary-size", size),
        *("--vocabulary-documents", slots),
    )


@pytest.mark.parametrize(
    ("snapshots", "words", "first"), [(3, (), 0), (2, chosen_words(60, 3000), 3000)]
)
def test_prefix_snapshots_take_everything_since_the_start(
    folder, tmp_path, snapshots, words, first
):
    """Words are a release more, of documents that are in no other."""
    more = ("--mode", "prefix", "--snapshots", snapshots, *words)
    fit(folder, tmp_path, *more, every=3000, words=not words)
    report = check_releases(tmp_path)
    assert (report["budget"]["horizon"], report["releases_left"]) == (6, 0)
    statement = load(tmp_path / "m").privacy
    assert statement["mode"] == "prefix"
    assert statement["cohort"] == {"first": first, "last": 8999}


@pytest.mark.parametrize(
    "more",
    [
        ("--mode", "prefix"),
        ("--unit", "user", "--user-field", "by", "--documents-per-user", 4),
    ],
)
@pytest.mark.parametrize("most", [1, 3])
def test_noise_for_more_snapshots_than_there_are_slots_is_warned_of(folder, tmp_path, more, most):
    said = fit(folder, tmp_path, *more, "--snapshots", most, every=9000)
    assert ("is for snapshots=3, and the files have record slots for 1" in said) == (most == 3)


@pytest.mark.parametrize(("read", "made"), [(3999, True), (3700, False), (300, False)])
def test_a_stream_shorter_than_a_window(folder, tmp_path, read, made):
    """The last stage has 480 of 4000 slots: it counts if half of them were read."""
    said = fit(folder, tmp_path, "--max-documents", read, code=0 if made else 65)
    assert (tmp_path / "m").exists() == made
    check_releases(tmp_path)
    if not made:
        assert said.count("\n") == 1
        assert f"slots={read} documents_per_snapshot={EVERY}" in said
        assert str(read - len(range(3, read, TENTH))) not in said


@pytest.mark.parametrize(("every", "made"), [(2000, True), (4200, False)])
def test_a_source_that_fails_ends_a_run_without_a_last_snapshot(
    folder, tmp_path, monkeypatch, every, made
):
    """Slots up to the failure are read; with 4200, most of the last stage."""
    # They were counted before.
    fail_behind(monkeypatch, SLOTS + 4096)
    said = fit(folder, tmp_path, every=every, code=74)
    assert "error: a source must go on answering" in said
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
        # In the last tenth of the window, which is a round; the slots were counted before.
        fail_behind(patch, SLOTS + EVERY - 100)
        said = fit(folder, tmp_path, "--refinement-rounds", 2, "--snapshots", 1, code=74)
    command = re.search(r"streamlda (budget \S+) --publish MODEL$", said, re.MULTILINE)
    assert "(incomplete, without refine 2)" in said
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    model_file = tmp_path / "model"
    done = run(*command[1].split(), "--publish", model_file)
    assert "incomplete  without refine 2" in done.stderr
    assert "privacy     private: epsilon 8, delta 1e-06" in done.stderr
    assert {path: path.read_bytes() for path in before} == before
    model = load(model_file)
    check_statement(model.privacy)
    assert model.vocabulary.words == load(folder / "truth").vocabulary.words
    assert model.settings["stream"].startswith("a.jsonl, ")
    assert matched_l1_error(load(folder / "truth").components, model.components).mean < 0.35
    shown = run("topics", model_file).stdout
    assert "incomplete  without refine 2" in shown
    assert "must not replace a file" in refused(*command[1].split(), "--publish", model_file)
    # What a second run is refused by leads there, too.
    again = fit(folder, tmp_path, every=7000, code=78)
    assert f"streamlda budget {tmp_path / 'L'}" in again


@pytest.mark.long
@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda process: process.kill(), -signal.SIGKILL),
        (lambda process: process.send_signal(signal.SIGINT), 130),
        (lambda process: process.stdin.close(), 65),
    ],
    ids=["killed", "interrupted", "at the end of the stream"],
)
def test_a_process_that_ended_in_a_round_has_a_model(folder, tmp_path, end, code):
    records = (folder / "a.jsonl").read_bytes().splitlines(keepends=True)[: EVERY - 700]
    more = ("--refinement-rounds", 2, "--format", "jsonl", "--stream", "piped")
    arguments = [str(part) for part in ("fit", "-", *options(folder, tmp_path, *more))]
    command = [sys.executable, "-m", "streamlda", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            process.stdin.write(b"".join(records))
            process.stdin.flush()
            released = tmp_path / "L.releases"
            wait_until(lambda: [*released.glob("*-refine-1.safetensors")], "no round was released")
            end(process)
            said = process.stderr.read().decode()
        finally:
            process.kill()
    assert process.returncode == code, said
    assert ("(incomplete, without refine 2)" in said) == (code > 0)
    # Undoes the row that a kill may have cut short.
    run("budget", tmp_path / "L")
    # Another run of these is known when it reads; what was spent before is not its own.
    command[command.index("piped")] = "other"
    again = subprocess.run(command, input=b"".join(records), stderr=subprocess.PIPE)
    assert (again.returncode, b"spent: " in again.stderr) == (78, False), again.stderr
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    run("budget", tmp_path / "L", "--publish", tmp_path / "model")
    assert {path: path.read_bytes() for path in before} == before
    model = load(tmp_path / "model")
    assert model.privacy["missing_stages"] == ["refine 2"]
    assert matched_l1_error(load(folder / "truth").components, model.components).mean < 0.35


@pytest.mark.long
@pytest.mark.parametrize(
    "way",
    [
        ("--vocabulary-kind", "private", "--vocabulary-size", 50, "--vocabulary-documents", 4000),
        ("--hash-bits", 7),
        ("--public-model", "truth"),
        ("--vocabulary", "words", "--unit", "user", "--user-field", "by", "--snapshots", 1),
    ],
    ids=lambda way: way[0],
)
def test_a_whole_window_gives_the_model_that_its_run_wrote(folder, tmp_path, way):
    """With words, settings and statement: where the file that it wrote is lost."""
    more = [folder / part if part in ("truth", "words") else part for part in way]
    if "user" in way:
        more += ["--documents-per-user", 2, "--delta", "1e-4"]
    fit(folder, tmp_path, *more, words=False)
    run("budget", tmp_path / "L", "--publish", tmp_path / "again")
    model, again = load(tmp_path / "m"), load(tmp_path / "again")
    np.testing.assert_array_equal(model.components, again.components)
    for name in ("vocabulary", "settings", "diagnostics", "privacy", "documents_seen"):
        assert getattr(model, name) == getattr(again, name)


def test_noise_has_no_seed(folder, tmp_path):
    found = []
    for name in ("a", "b"):
        to = tmp_path / name
        to.mkdir()
        fit(folder, to, "--snapshots", 1, "--seed", 3, every=1000)
        found.append(load(to / "m").components)
    assert not np.array_equal(*found)


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
    # The same words are found by who looks for them without noise.
    learned = ("--vocabulary-size", 9000, "--min-document-frequency", 1)
    run("fit", source, "-k", 3, "-o", tmp_path / "open", *learned, "--max-documents", 500)
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
    assert "must not be in two releases" in refused("fit", source, *given)


@pytest.mark.parametrize(
    ("slots", "wanted", "spent"),
    [
        (20, "must find a word", 1),
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


def test_a_refused_run_may_be_corrected_and_few_words_are_warned_of(folder, tmp_path):
    """With the same ledger: nothing was spent."""
    words = chosen_words(200, 4000)
    assert "at most 5200" in fit(folder, tmp_path, *words, every=5201, words=False, code=65)
    said = fit(folder, tmp_path, *words, every=5200, words=False)
    wanted = r"half of those wanted .*words=\d+ wanted=200 documents=4000 topics=3 threshold="
    assert re.search(wanted, said)
    report = check_releases(tmp_path)
    assert slots_of(report)[-1][1] == 9200


def test_public_words_come_beside_those_that_are_chosen(folder, tmp_path):
    """The first are free: neither votes nor the noise have a say; a quarter of a window chooses."""
    known = load(folder / "truth").vocabulary.words
    public = [*known[:10], "elsewhere"]
    (tmp_path / "list").write_text("\n".join(public), "ascii")
    words = ("--vocabulary-kind", "private", "--vocabulary", tmp_path / "list")
    said = fit(folder, tmp_path, *words, "--vocabulary-size", 11, words=False, code=78)
    assert "must have room for words besides the public ones" in said
    fit(folder, tmp_path, *words, "--vocabulary-size", 50, words=False)
    model = load(tmp_path / "m")
    assert list(model.vocabulary.words[:11]) == public
    assert set(public[:10]) < set(model.vocabulary.words) - {"elsewhere"} <= set(known)
    assert 20 < len(set(model.vocabulary.words)) == len(model.vocabulary.words) <= 50
    assert model.vocabulary.selection["public_words"] == 11
    assert slots_of(check_releases(tmp_path))[0] == [0, EVERY // 4]


@pytest.mark.statistical
@pytest.mark.parametrize("every", [9000, 4000])
def test_a_wrong_name_of_a_field_costs_the_first_stage_and_no_window(folder, tmp_path, every):
    """Under one of a thousand keys, noise passes for documents and the window is read on."""
    field, records = ("--text-field", "body"), (folder / "a.jsonl").read_text("ascii")
    said = fit(folder, tmp_path, *field, every=every, code=65)
    assert "3 known words or more, and no record is one" in said
    assert "nothing was spent" in said
    # One record has the field.
    body = " ".join((folder / "words").read_text("ascii").split()[:3])
    (tmp_path / "b.jsonl").write_text(records + json.dumps({"body": body}) + "\n", "ascii")
    given = options(folder, tmp_path, *field, every=every)
    said = run("fit", tmp_path / "b.jsonl", *given, code=65).stderr
    assert "must show documents above the noise" in said
    assert "source.text_field" in said
    ((first, last),) = slots_of(check_releases(tmp_path))
    assert first == 0
    assert last <= every // 10
    assert not (tmp_path / "m").exists()


@pytest.mark.long
def test_a_source_that_cannot_be_counted_says_so(folder, tmp_path):
    records = (folder / "a.jsonl").read_text("ascii").splitlines(keepends=True)[:300]
    given = ("fit", "-", "--format", "jsonl", *options(folder, tmp_path))
    command = [sys.executable, "-m", "streamlda", *map(str, given)]
    done = subprocess.run(command, input="".join(records), text=True, stderr=subprocess.PIPE)
    said = done.stderr
    assert (done.returncode, "slots=300 " in said) == (65, True), said
    assert "slots cannot be counted before" in said
    assert "spent: epsilon=8 of 8 by releases=1 " in said
    assert "give no model" in said


@pytest.mark.long
@pytest.mark.parametrize("kind", ["given", "private", "others"])
def test_standard_input_without_a_document_costs_nothing(folder, tmp_path, kind):
    """Text in UTF-16, whatever the words; or text that has none of these."""
    records = (folder / "plain.jsonl").read_text("ascii").splitlines()
    text = "".join(f"{json.loads(line)['text']}\n" for line in records)
    words = ("--vocabulary-kind", "private", "--vocabulary-size", 60, "--vocabulary-documents", 500)
    given = options(folder, tmp_path, *(words if kind == "private" else ()), words=kind == "given")
    if kind == "others":
        (tmp_path / "words").write_text("Jupiter\nSATURN\nuranus\n", "ascii")
        given += ("--vocabulary", tmp_path / "words")
    command = [sys.executable, "-m", "streamlda", *map(str, ("fit", "-", *given))]
    data = text.encode("ascii" if kind == "others" else "utf-16-le")
    done = subprocess.run(command, input=data, stderr=subprocess.PIPE)
    said = done.stderr.decode()
    assert (done.returncode, "no record is one, got slots=" in said) == (65, True), said
    assert said.rstrip().endswith("nothing was spent")
    assert "releases    none yet" in run("budget", tmp_path / "L").stdout
    # The same ledger serves once the text can be read.
    run("fit", folder / "a.jsonl", *options(folder, tmp_path))


def test_what_a_private_fit_must_not_have_is_refused_and_touches_nothing(folder, tmp_path):
    full = ("fit", folder / "a.jsonl", *options(folder, tmp_path))
    for wanted, arguments in (
        ("--refinement-rounds needs --epsilon", (*full[:6], "--refinement-rounds", 0)),
        ("--min-document-frequency must be left out", (*full, "--min-document-frequency", 2)),
        ("or another output", (*full, "--ledger", tmp_path / "m")),
        ("must not replace what is read", (*full, "--ledger", folder / "a.jsonl")),
        *(("or another output", (*full, "-o", path)) for path in beside(tmp_path / "L")),
        ("topics=61 words=60", (*full, "-k", 61)),
        ("delta must be at least ten times", (*full, "--delta", "1e-60")),
    ):
        assert wanted in refused(*arguments)
        assert list(tmp_path.iterdir()) == []


def test_no_output_replaces_what_a_ledger_has(folder, tmp_path):
    run("fit", folder / "a.jsonl", *options(folder, tmp_path))

    def files():
        return {p: p.read_bytes() for p in sorted(tmp_path.rglob("*")) if p.is_file()}

    kept = files()
    (one, *_) = (tmp_path / "L.releases").iterdir()
    rule = "must not be where a ledger keeps its own"
    fit = ("fit", folder / "a.jsonl", "-k", 3, "-o")
    for path in (tmp_path / "L", one, one.with_name("m"), *beside(tmp_path / "L")):
        if not path.is_dir():
            assert rule in refused(*fit, path)
            assert rule in refused("report", tmp_path / "m", "-o", path)
    assert rule in refused("budget", tmp_path / "L", "--publish", one.with_name("m"))
    into = ("run", folder / "a.jsonl", "-k", 3, "--http-port", 0)
    for name in ("--output-folder", "--checkpoint-folder"):
        assert rule in refused(*into, name, tmp_path / "L.releases")
    assert files() == kept


def test_a_stream_is_named_by_where_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = str(tmp_path.resolve())
    (tmp_path / "link").symlink_to("a.txt")
    for names, stream in (
        (["a.txt", "./b/../a.txt"], f"{here}/a.txt {here}/a.txt"),
        (["link", "s3://bucket/x*.gz"], f"{here}/a.txt s3://bucket/x*.gz"),
    ):
        flags = {"source.files": names, "output.file": "m"}
        assert stream_name(load_settings(None, {}, flags, "fit")) == stream


@pytest.mark.parametrize(
    ("options", "stages"),
    [
        # Three topics: two starts and an eigenvalue round each, or all at once.
        (("--solver", "noisy-power", "--iterations", 3, "--restarts", 2), 3 * (3 + 1)),
        (("--solver", "simultaneous", "--iterations", 3), 3),
        (("--refinement-rounds", 2), 2),
    ],
)
def test_private_rounds_from_the_command_line(folder, tmp_path, options, stages):
    fit(folder, tmp_path, *options)
    check_releases(tmp_path)
    statement = load(tmp_path / "m").privacy
    assert statement["statement"] == "private"
    names = [stage["name"] for stage in statement["stages"]]
    assert len([name for name in names if name.startswith(("power", "refine"))]) == stages


def test_a_run_begins_with_a_public_model_and_its_words(folder, tmp_path):
    truth = folder / "truth"
    fit(folder, tmp_path, "--public-model", truth, words=False, epsilon=1)
    model, public = load(tmp_path / "m"), load(truth)
    assert model.vocabulary.words == public.vocabulary.words
    check_statement(model.privacy)
    assert model.privacy["public_model"] == public.digest
    assert model.privacy["vocabulary"] == "public"
    assert matched_l1_error(public.components, model.components).mean < 0.1
    # Two windows of two stages.
    report = check_releases(tmp_path)
    assert [start for start, _ in slots_of(report)[::2]] == [0, EVERY]
    assert len(slots_of(report)) == 4
    said = run("topics", tmp_path / "m").stdout
    assert f"begun with  public model {public.digest}" in said


@pytest.mark.parametrize(
    ("given", "words", "code", "rule"),
    [
        (("missing",), False, 74, "No such file"),
        (("words",), True, 65, "a file must be one that streamlda wrote"),
        (("truth", "--vocabulary-kind", "private"), False, 78, "must have its own words"),
        (("truth", "--hash-bits", 8), False, 78, "must have its own words"),
        (("truth", "--stop-words", "none"), False, 78, "--stop-words needs --vocabulary"),
        (("truth", "--mode", "prefix", "--snapshots", 2), True, 78, "--mode must be window"),
        (("truth", "-k", 2), True, 78, "topics=3 n_components=2"),
    ],
)
def test_a_public_model_of_no_use_is_refused_and_spends_nothing(
    folder, tmp_path, given, words, code, rule
):
    name, *more = given
    said = fit(
        folder, tmp_path, "--public-model", folder / name, *more, words=words, epsilon=1, code=code
    )
    assert rule in said
    assert not [path for path in tmp_path.iterdir() if path.suffix != ".lock"]
