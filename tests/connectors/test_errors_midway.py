"""An error in a poll: the records before it come out, then it, then all that is behind it."""

import gzip
import os
import tty
from contextlib import ExitStack, closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlda.errors import SourceError
from streamlda_connectors import follow
from streamlda_connectors.files import FileSource
from streamlda_connectors.follow import FollowSource
from streamlda_connectors.stdin import StdinSource


def as_lines(texts):
    return "".join(f"{text}\n" for text in texts).encode()


WRITERS = {
    ".txt": lambda path, texts: path.write_bytes(as_lines(texts)),
    ".txt.gz": lambda path, texts: path.write_bytes(gzip.compress(as_lines(texts))),
    ".csv": lambda path, texts: path.write_bytes(as_lines(["text", *texts])),
    ".jsonl": lambda path, texts: path.write_bytes(as_lines(f'{{"text": "{t}"}}' for t in texts)),
    ".json": lambda path, texts: path.write_bytes(
        b"[%s]" % b",".join(b'{"text": "%s"}' % text.encode() for text in texts)
    ),
    ".parquet": lambda path, texts: pq.write_table(pa.table({"text": texts}), path),
}


def hide(path):
    """Put a link that leads nowhere in place of a file; return what brings the file back."""
    aside = path.with_name(f".{path.name}")
    path.rename(aside)
    path.symlink_to(path)

    def bring_back():
        path.unlink()
        aside.rename(path)

    return bring_back


def files_of(suffix):
    def open_files(folder, opened, before, behind):
        first, second = folder / f"a{suffix}", folder / f"b{suffix}"
        WRITERS[suffix](first, before)
        WRITERS[suffix](second, behind)
        return FileSource([str(first), str(second)]), hide(second)

    return open_files


def open_follow(folder, opened, before, behind):
    # The first poll scans, and meets the file that cannot be read.
    patch = opened.enter_context(pytest.MonkeyPatch.context())
    patch.setattr(follow, "SCAN_SECONDS", 0.0)
    first, second = folder / "a", folder / "b"
    first.write_bytes(as_lines(before))
    second.touch()
    source = FollowSource([str(first), str(second)], format="text")
    second.write_bytes(as_lines(behind))
    return source, hide(second)


def open_stdin(folder, opened, before, behind):
    """Return a source over a terminal, which fails for good once nobody has its other end."""
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    os.write(theirs, as_lines(before))
    os.close(theirs)
    return StdinSource(opened.enter_context(os.fdopen(ours, "rb", 0))), None


SOURCES = {f"files{suffix}": files_of(suffix) for suffix in WRITERS}
SOURCES |= {"follow": open_follow, "stdin": open_stdin}


@pytest.mark.parametrize("n_before", [1, 5])
@pytest.mark.parametrize("open_source", SOURCES.values(), ids=SOURCES)
def test_what_was_gathered_before_an_error_comes_out(tmp_path, open_source, n_before):
    before, behind = [f"first {i}" for i in range(n_before)], ["last 0", "last 1"]
    with ExitStack() as opened:
        source, heal = open_source(tmp_path, opened, before, behind)
        opened.enter_context(closing(source))
        found = source.poll(100, 60.0)
        assert found.documents == before
        assert not found.exhausted
        position = source.position()
        for _ in range(2):
            with pytest.raises(SourceError):
                source.poll(100, 60.0)
            assert source.position() == position
        if heal is not None:
            heal()
            assert source.poll(100, 60.0).documents == behind
