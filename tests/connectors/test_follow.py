"""Files that grow, rotate, are cut, come and go: each line is read once, or its loss is told."""

import json
import os
import shutil
from pathlib import Path
from time import monotonic

import pytest

from streamlda.errors import SourceError
from streamlda.stream.source import Reject
from streamlda_connectors import follow as source_module
from streamlda_connectors import watch
from streamlda_connectors.follow import FollowSource

#: Longer than the bytes by which files are told apart.
LINES = [f"line {i} " + "word " * 20 for i in range(8)]


class Log:
    def __init__(self, path):
        self.path = Path(path)

    def write(self, *lines, end="\n"):
        with self.path.open("a") as file:
            file.write("\n".join(lines) + end)

    def rotate(self, name="{}.1"):
        target = Path(name.format(self.path))
        if target.exists():
            Log(target).rotate(name)
        self.path.rename(target)
        return target

    def copy_and_cut(self):
        shutil.copy(self.path, f"{self.path}.1")
        os.truncate(self.path, 0)


def texts(source, wanted):
    """Poll until as many texts as wanted have come, and a few times more."""
    seen, end = [], monotonic() + 60.0
    while len(seen) < len(wanted) and monotonic() < end:
        seen += source.poll(3, 0.0).documents
    for _ in range(3):
        seen += source.poll(100, 0.0).documents
    assert seen == wanted


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "app.log")


@pytest.fixture
def follow(monkeypatch):
    """Open sources of text, of which a poll without a timeout scans the files and sees all."""
    monkeypatch.setattr(source_module, "SCAN_SECONDS", 0.0)
    monkeypatch.setattr(source_module, "SCAN_SHARE", 1)
    opened = []

    def follow(paths, position=None, **options):
        opened.append(FollowSource(paths, **{"format": "text", **options}))
        if position is not None:
            opened[-1].seek(json.loads(json.dumps(dict(position))))
        return opened[-1]

    yield follow
    for each in opened:
        each.close()


def test_a_line_counts_once_its_end_is_written(log, follow):
    log.write("one", "tw", end="")
    source = follow(log.path, max_document_bytes=1000)
    begun = monotonic()
    assert source.poll(9, 60.0).documents == ["one"]
    assert monotonic() - begun < 30.0
    begun = monotonic()
    assert source.poll(9, 0.2).documents == []
    assert monotonic() - begun >= 0.2
    assert source.lag() == {0: 2}
    log.write("o", end="")
    texts(source, [])
    log.write("", "three")
    texts(source, ["two", "three"])
    log.write("x" * 2_000_000, end="")
    texts(source, [])
    log.write("y" * 10, "four")
    poll = source.poll(9, 60.0)
    assert (poll.texts, poll.locations[1].record) == ([None, "four"], 5)
    assert poll.rejects == [Reject(str(log.path), 4, "too-long")]
    assert source.lag() == {0: 0}
    assert source.progress().done == log.path.stat().st_size


def test_read_and_removed_files_are_forgotten(tmp_path, follow):
    source = follow(tmp_path)
    for i in range(5):
        (tmp_path / f"{i}.txt").write_text(f"document {i}\n")
    texts(source, [f"document {i}" for i in range(5)])
    assert len(source.position()["files"]) == 5
    position = source.position()
    for i in range(4):
        (tmp_path / f"{i}.txt").unlink()
    texts(source, [])
    assert [Path(row[0]).name for row in source.position()["files"]] == ["4.txt"]
    resumed = follow(tmp_path, position)
    texts(resumed, [])
    assert [Path(row[0]).name for row in resumed.position()["files"]] == ["4.txt"]


def test_what_appears_later_under_the_paths(tmp_path, follow):
    becomes = tmp_path / "file"
    becomes.write_text("zero\n")
    source = follow([becomes, tmp_path / "later", tmp_path / "more" / "*.log"])
    assert source.poll(1).documents == ["zero"]
    becomes.unlink()
    becomes.mkdir()
    (becomes / "b").write_text("one\n")
    (tmp_path / "later" / "deep").mkdir(parents=True)
    (tmp_path / "more").mkdir()
    (tmp_path / "later" / "deep" / "a").write_text("two\n")
    (tmp_path / "more" / "a.log").write_text("three\n")
    (tmp_path / "more" / "a.txt").write_text("not wanted\n")
    texts(source, ["one", "two", "three"])


def test_directory_that_is_away_for_a_while_is_not_read_twice(tmp_path, follow):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a").write_text("one\n")
    source = follow(folder)
    texts(source, ["one"])
    position = source.position()
    folder.rename(tmp_path / "elsewhere")
    texts(source, [])
    resumed = follow(folder, position)
    texts(resumed, [])
    (tmp_path / "elsewhere").rename(folder)
    Log(folder / "a").write("two")
    for each in (source, resumed):
        texts(each, ["two"])
    unread = follow(folder).position()
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(SourceError, match="directory of a file"):
        follow(folder, unread)


def test_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "a")
    (tmp_path / "b").write_text("one\n")
    with pytest.raises(SourceError, match="connector stdin"):
        FollowSource(tmp_path / "a", format="text")
    source = FollowSource(tmp_path, format="text")
    assert source.poll(9).documents == ["one"]
    source.close()


def test_many_files_are_read_in_order_and_none_stays_open(tmp_path, follow):
    n_files = 60
    for i in range(n_files):
        (tmp_path / f"{i:05}.txt").write_text(f"document {i}\n")
    source = follow(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    seen = source.poll(30, 5.0).documents
    half = len(seen), source.position()
    while len(seen) < n_files:
        seen += source.poll(60, 5.0).documents
    assert seen == [f"document {i}" for i in range(n_files)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert len(json.dumps(dict(source.position()))) < 500 * n_files
    Log(tmp_path / "00007.txt").write("more")
    texts(source, ["more"])
    texts(follow(tmp_path, half[1]), ["more", *seen[half[0] :]])


def test_paths_may_be_added_but_not_left_out(log, follow):
    log.write("one")
    source = follow(log.path)
    texts(source, ["one"])
    other = Log(log.path.with_name("other"))
    other.write("two")
    both = follow([log.path, other.path], source.position())
    texts(both, ["two"])
    with pytest.raises(SourceError, match="same paths"):
        follow(log.path, both.position())


def test_one_file_under_several_names_and_paths_is_read_once(log, follow):
    log.write("one")
    os.link(log.path, log.path.with_name("b"))
    log.path.with_name("c").symlink_to(log.path)
    log.path.with_name("d").symlink_to("nowhere")
    source = follow([log.path, log.path.parent, f"{log.path.parent}/*"])
    texts(source, ["one"])
    log.write("two")
    texts(source, ["two"])


def size_of(lines):
    return sum(len(line) + 1 for line in lines)


def count_lost(source):
    gaps = source.position()["gaps"], source.position()["lost_bytes"]
    assert source.lost() == dict(zip(("gaps", "bytes"), gaps, strict=True))
    return gaps


@pytest.mark.parametrize(
    ("name", "whole"), [("{}.1", True), ("{}-20250131", False), ("{}.2025-01-31T00:00:00Z", True)]
)
def test_no_line_is_lost_or_repeated_at_a_rotation(log, follow, name, whole):
    log.write("one", "two")
    source = follow(log.path if whole else log.path.parent)
    texts(source, ["one", "two"])
    old = Log(log.rotate(name))
    old.write("three")
    texts(source, ["three"])
    log.write("four")
    texts(source, ["four"])
    old.write("late")
    texts(source, ["late"])


def test_last_line_of_a_rotated_file_is_a_record_once_the_newer_one_is_written(
    log, follow, monkeypatch
):
    log.write("one", "unfin", end="")
    source = follow(log.path)
    texts(source, ["one"])
    old = Log(log.rotate())
    texts(source, [])
    log.path.touch()
    with monkeypatch.context() as patch:
        patch.setattr(watch, "SETTLE_SECONDS", 0.0)
        texts(source, [])
    old.write("ished", end="")
    log.write("three")
    # It may still grow, however long this machine takes for a poll.
    monkeypatch.setattr(watch, "SETTLE_SECONDS", 1e6)
    texts(source, [])
    monkeypatch.setattr(watch, "SETTLE_SECONDS", 0.0)
    texts(source, ["unfinished", "three"])
    assert source.lag() == {0: 0}


def test_a_copy_that_is_made_during_a_scan_is_found(log, follow, monkeypatch):
    log.write(*LINES)
    source = follow(log.path)
    read = source.poll(3).documents
    list_files, cuts = watch.list_files, [log.copy_and_cut]

    def list_before_the_cut(paths):
        if cuts:
            log.write("last")
        found = list_files(paths)
        if cuts:
            cuts.pop()()
        return found

    monkeypatch.setattr(watch, "list_files", list_before_the_cut)
    texts(source, [*LINES[len(read) :], "last"])


def test_a_copy_that_a_listing_misses_while_it_is_renamed_is_found(log, follow, monkeypatch):
    log.write(*LINES)
    source = follow(log.path)
    read = source.poll(3).documents
    log.copy_and_cut()
    log.write("new")
    list_files, listings = watch.list_files, iter([True, False])

    def list_during_renames(paths):
        whole = next(listings, True)
        found = list_files(paths).items()
        return {identity: file for identity, file in found if whole or not file.base}

    monkeypatch.setattr(watch, "list_files", list_during_renames)
    texts(source, [*LINES[len(read) :], "new"])


def test_compressed_and_older_rotated_files_are_not_read(log, follow):
    log.write("old")
    log.rotate()
    log.write(*LINES)
    source = follow(log.path)
    texts(source, LINES)
    old = log.rotate()
    log.write("two")
    texts(source, ["two"])
    old.rename(f"{old}.gz")
    (log.path.parent / "app.log.2.gz").write_bytes(b"not text\n")
    texts(source, [])
    texts(follow(log.path, source.position()), [])


def test_gone_before_it_was_read_is_refused_or_recorded_without_its_text(log, follow, caplog):
    log.write(*LINES)
    source = follow(log.path)
    source.poll(3)
    position = source.position()
    source.close()
    log.rotate().unlink()
    log.write("new")
    unread = size_of(LINES[3:])
    fresh = follow(log.path)
    before = fresh.position()
    for refused in (lambda: follow(log.path, position), lambda: fresh.seek(position)):
        with pytest.raises(SourceError, match=f"least_unread_bytes={unread};.*allow_gaps") as error:
            refused()
        assert "word" not in str(error.value)
    assert fresh.position() == before
    source = follow(log.path, position, allow_gaps=True)
    texts(source, ["new"])
    assert count_lost(source) == (1, unread)
    assert f"{unread} bytes lost" in caplog.text
    assert "word" not in caplog.text
    texts(follow(log.path, source.position()), [])


def test_what_may_have_been_lost_is_refused_where_a_file_was_replaced(log, follow):
    log.write(*LINES)
    source = follow(log.path)
    texts(source, LINES)
    log.rotate().unlink()
    log.write("new")
    with pytest.raises(SourceError, match="least_unread_bytes=0"):
        follow(log.path, source.position())
    # Whoever was watching knows that nothing is missing.
    texts(source, ["new"])


def test_file_that_is_gone_is_read_from_a_copy_put_back(log, follow):
    log.write(*LINES)
    source = follow(log.path)
    read = source.poll(3).documents
    position = source.position()
    kept = log.path.read_bytes()
    log.path.unlink()
    log.write("new")
    with pytest.raises(SourceError, match="put it back"):
        source.poll(3)
    Path(f"{log.path}.1").write_bytes(kept)
    for each in (source, follow(log.path, position)):
        texts(each, [*LINES[len(read) :], "new"])


def test_reused_inode_is_another_file(log, follow):
    log.write(*LINES)
    source = follow(log.path)
    texts(source, LINES)
    position = json.loads(json.dumps(dict(source.position())))
    source.close()
    other = Log(log.path.with_name("other.log"))
    other.write(*(f"other {line}" for line in LINES))
    # As if the other one had got the inode of the first.
    position["files"][0][3] = other.path.stat().st_ino
    log.path.unlink()
    with pytest.raises(SourceError, match="least_unread_bytes=0"):
        follow(log.path, position)
    position["paths"] = [str(log.path.parent)]
    texts(follow(log.path.parent, position), [f"other {line}" for line in LINES])


def test_what_was_read_or_never_finished_may_be_cut_off_without_a_gap(log, follow):
    log.write("one", "two")
    source = follow(log.path)
    texts(source, ["one", "two"])
    log.path.write_text("three\nfour\nfive\n")
    texts(source, ["three", "four", "five"])
    os.truncate(log.path, 6)
    texts(source, ["three"])
    log.write("half", end="")
    texts(source, [])
    os.truncate(log.path, 6)
    texts(source, [])
    log.write("two")
    texts(source, ["two"])
    assert count_lost(source) == (0, 0)


def test_unread_lines_that_were_cut_off_are_a_gap(log, follow):
    log.write(LINES[0])
    source = follow(log.path, allow_gaps=True)
    texts(source, LINES[:1])
    source.pause()
    log.write(*LINES[1:])
    texts(source, [])
    os.truncate(log.path, len(LINES[0]) + 1)
    texts(source, [])
    source.resume()
    texts(source, [])
    assert count_lost(source) == (1, size_of(LINES[1:]))


def test_names_from_which_rotation_makes_a_name(log, follow):
    log.write("one")
    for name in ("{}.old", "{}_1", "{}.1.bak", "{}1"):
        Log(name.format(log.path)).write("of another name")
    Log(log.path.with_name("app.1.log")).write("of another name")
    for name in ("{}.2", "{}-20250131", "{}.2025-01-31"):
        source = follow(log.path)
        texts(source, ["one"])
        Log(name.format(log.path)).write("moved here")
        texts(source, ["moved here"])
        Path(name.format(log.path)).unlink()


def test_a_copy_that_is_shorter_than_what_was_read_is_not_read_again(log, follow):
    log.write(*LINES[:4])
    source = follow(log.path)
    texts(source, LINES[:4])
    copy = log.path.read_bytes()
    log.write(*LINES[4:])
    texts(source, LINES[4:])
    position = source.position()
    # As if it had been made before the last lines, and is only seen now.
    Path(f"{log.path}.1").write_bytes(copy)
    log.path.write_text("new\n")
    for each in (source, follow(log.path, position)):
        texts(each, ["new"])
        assert count_lost(each) == (0, 0)
