"""``streamlda fit --epsilon``: what a private run asks for, writes, spends, prints and refuses."""

import json
import re
from itertools import pairwise

import numpy as np
import pytest

from streamlda.model.evaluation import matched_l1_error
from streamlda.model.topic_model import load
from streamlda.privacy.ledger import read_report
from streamlda.privacy.statement import check_statement
from streamlda.run.parts import stream_name
from streamlda.settings.load import load_settings
from streamlda.storage.snapshots import Snapshots
from tests.cli.test_cli import run
from tests.cli.test_fit import fail_behind

EVERY = 4000

#: Records of the corpus; every tenth is no document.
SLOTS, TENTH = 9200, 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Records of planted topics, some of them rejects, with a user each; their words."""
    folder = tmp_path_factory.mktemp("private")
    sizes = ("--topics", 3, "--vocabulary-size", 60, "--mean-length", 40)
    run(
        *("simulate", "-n", SLOTS, *sizes, "-o", folder / "plain.jsonl"),
        *("--truth", folder / "truth"),
    )
    lines = (folder / "plain.jsonl").read_text("ascii").splitlines()
    with (folder / "a.jsonl").open("w", encoding="ascii") as file:
        for i, line in enumerate(lines):
            values = {"text": json.loads(line)["text"], "by": f"user{i % 3000}"}
            file.write(("{" if i % TENTH == 3 else json.dumps(values)) + "\n")
    words = load(folder / "truth").vocabulary.words
    (folder / "words").write_text("\n".join(words), "ascii")
    return folder


def options(folder, to, *, every=EVERY, epsilon=8, words=True, ledger="L"):
    """Return what a private run needs, to be written to another folder."""
    return (
        *("-k", 3, "-o", to / "m", "--epsilon", epsilon, "--delta", "1e-6"),
        *("--ledger", to / ledger, "--snapshot-every", every),
        *(("--vocabulary", folder / "words") if words else ()),
    )


@pytest.fixture(scope="module")
def fitted(folder):
    """A private run over the corpus: its folder, and what it printed."""
    to = folder / "fitted"
    to.mkdir()
    done = run("fit", folder / "a.jsonl", *options(folder, to), "--output-folder", to / "all")
    return to, done


def report_of(to, ledger="L"):
    return json.loads(run("budget", to / ledger, "--json").stdout)


def check_files(to, ledger="L"):
    """Check that what lies beside a ledger is what it says: no release that was not paid for."""
    report = read_report(to / ledger)
    committed = [each for each in report["snapshots"] if each["state"] == "committed"]
    releases = to / f"{ledger}.releases"
    files = {path.name for path in releases.iterdir()} if releases.exists() else set()
    assert files == {each["artifact"].split("/")[-1] for each in committed}
    assert len(files) <= len(report["snapshots"])
    return report


def test_snapshots_are_written_paid_for_and_find_the_topics(folder, fitted):
    to, _ = fitted
    report = check_files(to)
    assert report == report_of(to)
    assert report["pending"] == report["lost"] == []
    # Two windows of four stages, and the first stage of the third window.
    cohorts = [each["documents"][0] for each in report["snapshots"]]
    assert len(cohorts) == 9
    assert [start for _, start, _ in cohorts[::4]] == [0, EVERY, 2 * EVERY]
    assert all(a[2] == b[1] for a, b in pairwise(cohorts))
    assert {stream for stream, _, _ in cohorts} == {str((folder / "a.jsonl").resolve())}
    numbered = Snapshots(to / "all")
    assert numbered.latest() == 2
    assert load(to / "m").privacy == numbered.model(2).privacy
    truth = load(folder / "truth").components
    for number in (1, 2):
        model = numbered.model(number)
        check_statement(model.privacy)
        # Topics that are drawn anew from their prior are at about 1.
        assert matched_l1_error(truth, model.components).mean < 0.35
    slots = [(each["start"], each["stop"] - 1) for each in _ranges(report)[4:8]]
    stages = load(to / "m").privacy["stages"]
    assert [(stage["first"], stage["last"]) for stage in stages] == slots


def _ranges(report):
    parts = [each["documents"][0] for each in report["snapshots"]]
    return [{"start": start, "stop": stop} for _, start, stop in parts]


def test_nothing_exact_about_the_documents_is_printed(fitted):
    _, done = fitted
    numbers = {int(found.replace(",", "")) for found in re.findall(r"\d[\d,]*\d", done.stderr)}
    rejects = len(range(3, SLOTS, TENTH))
    assert SLOTS in numbers
    assert not numbers & {rejects, SLOTS - rejects}
    assert "private and not shown" in done.stderr
    for told in ("not-json", "documents in", "tokens outside", "documents/s"):
        assert told not in done.stderr
    assert done.stdout == ""


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


def test_a_second_run_is_refused_before_reading(folder, fitted):
    to, _ = fitted
    moved = folder / "b.jsonl"
    (folder / "a.jsonl").rename(moved)
    try:
        before = (to / "L").read_bytes()
        again = run("fit", folder / "a.jsonl", *options(folder, to), code=78)
        assert "must not be in two releases" in again.stderr
        assert "--stream NAME" in again.stderr
        assert again.stderr.count("\n") == 1
        assert (to / "L").read_bytes() == before
        # Under another name it gets as far as the file, which is not there.
        other = ("--stream", "other")
        gone = run("fit", folder / "a.jsonl", *options(folder, to), *other, code=74)
        assert "a.jsonl" in gone.stderr
        assert "two releases" not in gone.stderr
    finally:
        moved.rename(folder / "a.jsonl")
    # Nor with another setting of the promise.
    changed = run("fit", moved, *options(folder, to, epsilon=9), code=78)
    assert "epsilon" in changed.stderr


def test_users_pay_for_each_snapshot_until_nothing_is_left(folder, tmp_path):
    users = ("--unit", "user", "--user-field", "by", "--documents-per-user", 1, "--snapshots", 1)
    given = options(folder, tmp_path, every=9000, epsilon=10)
    run("fit", folder / "a.jsonl", *given, *users)
    statement = load(tmp_path / "m").privacy
    assert (statement["privacy_unit"], statement["documents_per_user"]) == ("user", 1)
    report = check_files(tmp_path)
    assert len(report["snapshots"]) == 4
    # Two hundred records are left; they were not read into a release.
    assert _ranges(report)[-1]["stop"] == 9000
    model = (tmp_path / "m").read_bytes()
    refused = run("fit", tmp_path / "gone", *given, *users, "--stream", "others", code=78)
    assert "must fit into the privacy budget" in refused.stderr
    assert "remaining=" in refused.stderr
    assert "spent=" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert len(check_files(tmp_path)["snapshots"]) == 4
    assert (tmp_path / "m").read_bytes() == model


def test_prefix_snapshots_take_everything_since_the_start(folder, tmp_path):
    prefix = ("--mode", "prefix", "--snapshots", 3)
    run("fit", folder / "a.jsonl", *options(folder, tmp_path, every=3000), *prefix)
    report = check_files(tmp_path)
    assert report["budget"]["horizon"] == 6
    assert report["releases_left"] == 0
    statement = load(tmp_path / "m").privacy
    assert statement["mode"] == "prefix"
    assert statement["cohort"] == {"first": 0, "last": 8999}


@pytest.mark.parametrize(("read", "made"), [(3999, True), (3700, False), (300, False)])
def test_a_stream_shorter_than_a_window(folder, tmp_path, read, made):
    """The last stage has 480 of 4000 slots: it counts if half of them were read."""
    given = (*options(folder, tmp_path), "--max-documents", read)
    done = run("fit", folder / "a.jsonl", *given, code=0 if made else 65)
    assert (tmp_path / "m").exists() == made
    check_files(tmp_path)
    if not made:
        assert done.stderr.count("\n") == 1
        assert f"slots={read} documents_per_snapshot={EVERY}" in done.stderr
        assert str(read - len(range(3, read, TENTH))) not in done.stderr


@pytest.mark.parametrize(("every", "made"), [(2000, True), (4200, False)])
def test_a_source_that_fails_ends_a_run_without_a_last_snapshot(
    folder, tmp_path, monkeypatch, every, made
):
    """Slots up to the failure are read; with 4200, most of the last stage."""
    fail_behind(monkeypatch, 4096)
    done = run("fit", folder / "a.jsonl", *options(folder, tmp_path, every=every), code=74)
    assert "error: a source must go on answering" in done.stderr
    assert (tmp_path / "m").exists() == made
    assert ("no snapshot was made" in done.stderr) != made
    assert check_files(tmp_path)["generation"] == (9 if made else 3)


def test_noise_has_no_seed(folder, tmp_path):
    given = (*options(folder, tmp_path, every=1000), "--snapshots", 1, "--seed", 3)
    run("fit", folder / "a.jsonl", *given)
    first = load(tmp_path / "m").components
    again = options(folder, tmp_path, every=1000, ledger="other")
    run("fit", folder / "a.jsonl", *again, "--snapshots", 1, "--seed", 3)
    assert not np.array_equal(first, load(tmp_path / "m").components)


def chosen_words(size, slots):
    return (
        *("--vocabulary-kind", "private", "--vocabulary-size", size),
        *("--vocabulary-documents", slots),
    )


def unique_words(folder, to):
    """Write the corpus with a word in each document that no other has."""
    with (folder / "plain.jsonl").open(encoding="ascii") as file, (to / "u.txt").open("w") as out:
        for i, line in enumerate(file):
            lone = "".join(chr(97 + int(digit)) for digit in f"{i:06d}")
            out.write(f"{json.loads(line)['text']} lone{lone}\n")
    return to / "u.txt"


@pytest.mark.statistical
def test_words_that_one_document_has_are_never_published(folder, tmp_path):
    """With probability at most 5000 delta, 0.5 %, a word of one of 5,000 documents is kept."""
    source = unique_words(folder, tmp_path)
    chosen = (
        "--vocabulary-kind",
        "private",
        "--vocabulary-size",
        50,
        "--vocabulary-documents",
        5000,
    )
    given = options(folder, tmp_path, words=False)
    done = run("fit", source, *given, *chosen)
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
    report = check_files(tmp_path)
    assert [each["description"] for each in report["snapshots"][:2]] == ["words", "norms"]
    assert _ranges(report)[0] == {"start": 0, "stop": 5000}
    assert _ranges(report)[1]["start"] == 5000
    assert model.privacy["cohort"]["first"] == 5000
    assert report["budget"]["delta"] < 1e-6 - model.vocabulary.selection["delta"]
    again = run("fit", source, *given, *chosen, code=78)
    assert "must not be in two releases" in again.stderr


def test_words_are_a_release_more_in_prefix_mode(folder, tmp_path):
    chosen = (
        "--vocabulary-kind",
        "private",
        "--vocabulary-size",
        60,
        "--vocabulary-documents",
        3000,
    )
    prefix = ("--mode", "prefix", "--snapshots", 2)
    given = options(folder, tmp_path, every=3000, words=False)
    run("fit", folder / "a.jsonl", *given, *chosen, *prefix)
    report = check_files(tmp_path)
    assert report["budget"]["horizon"] == len(report["snapshots"]) == 6
    assert load(tmp_path / "m").privacy["cohort"] == {"first": 3000, "last": 8999}


@pytest.mark.parametrize(
    ("slots", "read", "wanted", "spent"),
    [(20, 100, "must find a word", 1), (200, 100, "slots=100 vocabulary_documents=200", 0)],
)
def test_a_choice_of_words_that_cannot_be_made(folder, tmp_path, slots, read, wanted, spent):
    chosen = (
        "--vocabulary-kind",
        "private",
        "--vocabulary-size",
        60,
        "--vocabulary-documents",
        slots,
        "--max-documents",
        read,
    )
    given = options(folder, tmp_path, epsilon=1, words=False)
    done = run("fit", folder / "a.jsonl", *given, *chosen, code=65)
    assert wanted in done.stderr
    assert done.stderr.count("\n") == 1
    assert len(check_files(tmp_path)["snapshots"]) == spent
    assert not (tmp_path / "m").exists()


def test_what_a_private_fit_must_not_have_is_refused_and_touches_nothing(folder, tmp_path):
    full = ("fit", folder / "a.jsonl", *options(folder, tmp_path))
    for wanted, arguments in {
        "--refinement-rounds must have --epsilon": (*full[:6], "--refinement-rounds", 0),
        "--min-document-frequency must be left out with --epsilon: exact counts": (
            *(*full, "--min-document-frequency", 2),
        ),
        "or another output": (*full, "--ledger", tmp_path / "m"),
        "must not replace what is read": (*full, "--ledger", folder / "a.jsonl"),
        "topics=61 words=60": (*full, "-k", 61),
        "delta must be at least ten times": (*full, "--delta", "1e-60"),
    }.items():
        result = run(*arguments, code=78)
        assert wanted in result.stderr
        assert result.stderr.startswith("streamlda: error: ")
        assert list(tmp_path.iterdir()) == []


def test_a_stream_is_named_by_where_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = str(tmp_path.resolve())
    (tmp_path / "link").symlink_to("a.txt")
    for names, stream in (
        (["-"], "stdin"),
        (["a.txt", "./b/../a.txt"], f"{here}/a.txt {here}/a.txt"),
        (["link", "s3://bucket/x*.gz"], f"{here}/a.txt s3://bucket/x*.gz"),
    ):
        flags = {"source.files": names, "output.file": "m"}
        assert stream_name(load_settings(None, {}, flags, "fit")) == stream


@pytest.mark.parametrize("solver", ["simultaneous", "noisy-power"])
def test_private_power_methods_from_the_command_line(folder, tmp_path, solver):
    power = ("--solver", solver, "--iterations", 3, *(("--restarts", 2) * (solver[0] == "n")))
    run("fit", folder / "a.jsonl", *options(folder, tmp_path), *power)
    check_files(tmp_path)
    statement = load(tmp_path / "m").privacy
    assert statement["statement"] == "private"
    rounds = [stage["name"] for stage in statement["stages"] if stage["name"].startswith("power")]
    # Three topics: two starts and an eigenvalue round each, or all at once.
    assert len(rounds) == (3 if solver == "simultaneous" else 3 * (3 + 1))


def test_private_refinement_from_the_command_line(folder, tmp_path):
    run("fit", folder / "a.jsonl", *options(folder, tmp_path), "--refinement-rounds", 2)
    check_files(tmp_path)
    model = load(tmp_path / "m")
    names = [stage["name"] for stage in model.privacy["stages"]]
    assert names[-2:] == ["refine 1", "refine 2"]
    assert model.settings["refinement_rounds"] == 2
