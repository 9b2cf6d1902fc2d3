"""Files that grow, rotate, are cut, come and go: each line is read once, in one process."""

import json
import os
from pathlib import Path
from time import monotonic

import pytest

from streamlda.errors import SourceError
from streamlda.stream.source import Reject
from streamlda_connectors.follow import FollowSource
from tests.connectors.logs import Log, texts


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
    poll = source.poll(9, 5.0)
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
    for each in (source, resumed):
        texts(each, [])
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
    seen, half = [], None
    while len(seen) < n_files:
        seen += source.poll(60, 5.0).documents
        half = half or (len(seen), source.position())
    assert seen == [f"document {i}" for i in range(n_files)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert len(json.dumps(dict(source.position()))) < 500 * n_files
    Log(tmp_path / "00007.txt").write("more")
    texts(source, ["more"])
    # The oldest file goes first.
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
