"""``streamlda fit``: what it learns, writes, says and refuses, and what a signal leaves of it."""

import fcntl
import gzip
import json
import signal
import struct
import subprocess
import sys
import termios
from contextlib import contextmanager

import pytest

from streamlda.errors import SourceError
from streamlda.model.topic_model import load
from streamlda.privacy.ledger import read_report
from streamlda_connectors.files import FileSource
from tests.cli.conftest import ALL_WORDS, plant, refused, run, spell_arguments
from tests.kafka.topics import wait_until


def fail_behind(monkeypatch, records):
    """Let files fail behind their first records, however they are polled."""
    left = [records]

    def poll(self, max_records, timeout_seconds=1.0, poll=FileSource.poll):
        if not left[0]:
            raise SourceError("a source must continue answering; try again later")
        batch = poll(self, min(max_records, left[0]), timeout_seconds)
        left[0] -= batch.n_records
        return batch

    monkeypatch.setattr(FileSource, "poll", poll)


def test_rejects_are_counted_by_reason_and_named_by_infer(tmp_path):
    good = json.dumps({"text": "apple bread cheese"})
    lines = [good, "{", good, '{"text": 1}', "", '{"text": "pear"}', '{"title": ""}', good]
    path, words = tmp_path / "a.jsonl", tmp_path / "words"
    path.write_text("\n".join(lines), "ascii")
    words.write_text("apple\nbread\ncheese\n", "ascii")
    common = ("-k", 1, "--vocabulary", words, "source.most_lost=0.4")
    said = run("fit", path, *common, "-o", tmp_path / "m").stderr
    skipped = (
        "streamlda: warning: 3 records skipped: missing-field 1, not-json 1, not-text 1; "
        "there the fields are title\n"
    )
    assert skipped in said
    assert skipped in run("fit", path, *common, "-o", tmp_path / "q", "--quiet").stderr
    named = run("infer", tmp_path / "m", path, "--most-lost", 0.4).stdout
    found = [json.loads(line) for line in named.splitlines()]
    assert [(each["record"], each["reason"]) for each in found if each["reason"]] == [
        (2, "not-json"),
        (4, "not-text"),
        (5, "blank"),
        (6, "no-known-word"),
        (7, "missing-field"),
    ]
    assert {each["location"] for each in found} == {str(path)}
    assert "1 document skipped" in said
    assert "apple" not in said


def test_what_is_no_word_is_counted_by_reason(tmp_path):
    lines = ["The ship 3 saw the salt sea, x", "the U.S. ship and the sea"]
    lines += ["salt of the U.S. coast in 2019", "ship"]
    (tmp_path / "a.txt").write_text("\n".join(lines * 5 + ["rare"]))
    limits = ("--set", "vocabulary.min_document_frequency=2", "--set", "vocabulary.size=3")
    said = run("fit", tmp_path / "a.txt", "-k", 2, *limits, "-o", tmp_path / "m").stderr
    # ship 15, salt, sea and u_s 10 each, saw 5 and coast 5, rare 1.
    assert "words left out: 1 in too few documents, 3 beyond the size of the vocabulary" in said
    shares = "36.0% stop words, 9.0% numbers, 4.5% single letters"
    assert f"share of the first documents that is no word: {shares}" in said
    assert "of one or two known words" in said


def test_files_that_broke_off_are_named_and_end_with_65_where_too_much_is_lost(tmp_path):
    """Also in a quiet run; the model of the rest is written."""
    text = "".join(json.dumps({"text": f"apple bread cheese {n}"}) + "\n" for n in range(400))
    whole = gzip.compress(text.encode(), mtime=0)
    (tmp_path / "a.jsonl.gz").write_bytes(whole)
    (tmp_path / "b.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "c.jsonl").write_bytes(b"")
    given = ("fit", tmp_path / "?.jsonl*", "-k", 1, "-o", tmp_path / "m", "--quiet")
    said = run(*given, code=65).stderr
    stored = len(whole) // 2
    broken = f"{tmp_path}/b.jsonl.gz broke off (broken-compression)"
    assert f"{broken}, with at most {stored} stored bytes" in said
    assert f"{tmp_path}/c.jsonl has no record" in said
    assert "lost=0.33" in said
    assert load(tmp_path / "m").documents_seen > 400
    assert "broke off" in run(*given, "source.most_lost=0.34").stderr
    assert run("fit", tmp_path / "a.jsonl.gz", *given[2:]).stderr == ""


def test_unusable_documents_are_an_error_that_counts_them(tmp_path):
    # A given vocabulary, for without documents there is nothing to learn one from.
    (tmp_path / "words").write_text("apple\nbread\n", "ascii")
    given = ("-k", 1, "-o", tmp_path / "m", "--vocabulary", tmp_path / "words")
    for name, content, wanted in (
        ("a.txt", b"", "documents=0 short=0 rejects=0"),
        ("a.jsonl", b"{oops}\n[]\n", " not-an-object=1 not-json=1"),
        ("a.jsonl", b'{"body": "secret words"}\n{"text": 7}\n', "=1; there the fields are body;"),
        ("a.txt", b"apple bread\ncheese\n", "short=2"),
        ("a.jsonl.gz", gzip.compress(b'{"text": "a b c"}\n')[:-9], " broken-compression=1"),
    ):
        (tmp_path / name).write_bytes(content)
        message = refused("fit", tmp_path / name, *given, "--encoding", "utf-8", code=65)
        assert wanted in message
        assert "secret" not in message
        assert not (tmp_path / "m").exists()


def test_a_fit_that_was_cut_short_saves_its_model_and_continues(folder, tmp_path, monkeypatch):
    kept = (f"checkpoint.folder={tmp_path / 'kept'}", "vocabulary.documents=1000")
    common = ("fit", folder / "all.txt", "-k", 2, "-q", *kept, "-o", tmp_path / "m")
    with monkeypatch.context() as patch:
        fail_behind(patch, 4000)
        failed = run(*common, code=74)
    assert "error: a source must continue answering" in failed.stderr
    assert load(tmp_path / "m").documents_seen == 4000
    # The second time nothing is left to read: the newest model stays.
    for _ in range(2):
        run(*common)
        assert load(tmp_path / "m").documents_seen == 6300
    assert "alpha_0=3.0 (saved: 1.0)" in refused(*common, "topics.alpha_0=3")


STREAMLDA = [sys.executable, "-m", "streamlda"]
LINE = b'{"text": "apple bread cheese dates"}\n'
FIT = spell_arguments("fit", "-", "--format", "jsonl", "-k", "1", *ALL_WORDS)


@contextmanager
def start_over_pipe(*arguments, lines=()):
    process = subprocess.Popen(
        [*STREAMLDA, *spell_arguments(*arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        # The shell that started the tests may have told its children to ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with process:
        try:
            process.stdin.write(b"".join(lines))
            yield process
        finally:
            process.kill()


def wait_until_read(pipe):
    def reached():
        return not struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]

    wait_until(reached)


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_what_was_read(tmp_path, number, code):
    output = tmp_path / "model"
    output.write_bytes(b"older")
    with start_over_pipe(*FIT, "-o", output, lines=[LINE] * 500) as process:
        wait_until_read(process.stdin)
        assert output.read_bytes() == b"older"
        process.send_signal(number)
        # Standard input stays open: the end is the signal's doing.
        assert process.wait(300) == code
        assert load(output).documents_seen == 500
        message = process.stderr.read()
    assert b"stopped before the end of the source" in message
    assert message.count(b"a second signal ends at once") == 1
    assert b"Traceback" not in message


@pytest.mark.long
@pytest.mark.parametrize(("read", "released", "made"), [(1300, 8, True), (490, 3, False)])
def test_a_signal_keeps_the_last_private_snapshot(tmp_path, read, released, made):
    """In the second case most of the last stage was read: where a signal comes is no end."""
    path, ledger = tmp_path / "a.txt", tmp_path / "L"
    plant(path, 1300, 20, n_topics=2, mean_length=30, truth=tmp_path / "truth")
    given = ["fit", "-", "-k", "2", "-o", tmp_path / "m", "--vocabulary", tmp_path / "words"]
    given += ["--epsilon", "8", "--delta", "1e-6", "--ledger", ledger, "--snapshot-every", "500"]

    def reached():
        return ledger.exists() and read_report(ledger)["generation"] >= released

    with start_over_pipe(*given, lines=path.read_bytes().splitlines(True)[:read]) as process:
        wait_until_read(process.stdin)
        wait_until(reached)
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 130
        message = process.stderr.read()
    assert b"Traceback" not in message
    assert (tmp_path / "m").exists() == made
    if made:
        assert b"stopped before the end of the source" in message
        assert load(tmp_path / "m").settings["snapshot"] == 2
    else:
        assert b"stopped before a model was learned" in message
        assert b"slots=490" in message
        assert read_report(ledger)["generation"] == 3
