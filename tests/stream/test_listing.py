"""Files that paths stand for, alike in one process and in the tasks of a cluster."""

import glob
import gzip
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError, SourceError
from streamlda.scaleout.shards import of_files, rows_of
from streamlda.stream.listing import find_files
from streamlda.stream.source import RecordBatch
from streamlda_connectors.files import FileSource

FOLDERS = [".", ".", "b", "b/c", "f[1]", ".h", "b/.g", ".h/c"]
NAMES = ["a.txt", "B.TXT", "[a].txt", ".x.txt", "c.txt.gz", "d.Txt.GZ", "e"]
KINDS = ["file", "file", "file", "link", "dangling link", "loop", "folder link", "pipe"]
PATTERNS = [
    *("", "/", "/*", "/**", "/**/*.txt", "/?.txt", "/[a-f]*", "/*/*", "/**/[!a]*"),
    *("/.h/*", "/f[1]", "/[a].txt", "/a.txt"),
]

trees = st.dictionaries(
    st.tuples(st.sampled_from(FOLDERS), st.sampled_from(NAMES)).map("/".join),
    st.sampled_from(KINDS),
    min_size=1,
    max_size=12,
)


def content(name):
    text = f"{name}\n".encode()
    return gzip.compress(text) if name.lower().endswith(".gz") else text


def make(path, kind, targets):
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "file":
        path.write_bytes(content(str(path)))
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        target = targets / path.name.lstrip(".")
        target.write_bytes(content(target.name))
        path.symlink_to(target)
    else:
        leads_to = {"dangling link": targets / "none", "loop": path, "folder link": targets}
        path.symlink_to(leads_to[kind])


def expected(path):
    """Return what the standard library finds; nothing below links to folders."""
    top, names = Path(path), []
    if top.is_dir():
        for here, folders, files in os.walk(path.rstrip("/")):
            folders[:] = [name for name in folders if not name.startswith(".")]
            names += [os.path.join(here, name) for name in files if not name.startswith(".")]  # noqa: PTH118
    elif top.exists():
        names = [path]
    else:
        found = map(Path, glob.glob(path, recursive=True))  # noqa: PTH207
        names = [str(file) for file in found if not any(up.is_symlink() for up in file.parents)]
    return sorted(name for name in names if Path(name).is_file())


def texts_of_source(paths):
    source = FileSource(paths)
    texts = source.poll(1000, 60.0).documents
    source.close()
    return texts


def texts_of_shards(paths, n_shards):
    shards = of_files(paths, shards=n_shards).shards
    batches = [rows for shard in shards for rows in rows_of(shard, None)]
    return [text for rows in batches if isinstance(rows, RecordBatch) for text in rows.documents]


@given(
    tree=trees,
    patterns=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2),
    n_shards=st.integers(1, 5),
)
def test_every_route_reads_the_same_files_in_the_same_order(tree, patterns, n_shards):
    with tempfile.TemporaryDirectory() as folder:
        targets, top = Path(folder, "targets"), Path(folder, "in")
        targets.mkdir()
        for name, kind in tree.items():
            make(top / name, kind, targets)
        paths = [f"{top}{pattern}" for pattern in patterns]
        lists = [expected(path) for path in paths]
        names = [name for found in lists for name in found]
        if all(lists) and len(set(names)) == len(names):
            assert [file.name for file in find_files(paths, "auto")] == names
            texts = texts_of_source(paths)
            assert len(texts) == len(names)
            assert texts_of_shards(paths, n_shards) == texts
        else:
            for route in (texts_of_source, lambda paths: texts_of_shards(paths, n_shards)):
                with pytest.raises(SourceError, match=r"not exist|no files|no file or|twice"):
                    route(paths)


def test_other_file_systems_are_listed_alike():
    memory = fsspec.filesystem("memory")
    top = "/streamlda-listing"
    for name in ("b/1.txt", "a.JSONL.gz", ".h/x.txt", "b/.y.txt", "b/.g/z.txt", "[b].txt"):
        memory.pipe(f"{top}/{name}", content(name))
    url = f"memory:/{top}"
    for paths in ([url], [f"{url}/**"], [f"{url}/*.txt", f"{url}/b", f"{url}/a*"]):
        names = [file.name for file in find_files(paths, "text")]
        with pytest.raises(SourceError, match="memory of this process"):
            of_files(paths)
        found = [name.removeprefix(f"memory://{top}/") for name in names]
        assert sorted(found) == ["[b].txt", "a.JSONL.gz", "b/1.txt"]


def test_sizes_and_formats_are_those_of_the_names(tmp_path):
    formats = {"a.JSON": "json", "b.tsv.gz": "csv", "c.ndjson": "jsonl", "d": "file"}
    for name in formats:
        (tmp_path / name).write_bytes(b"12345")
    (tmp_path / "e.csv").symlink_to(tmp_path / "a.JSON")
    files = find_files(tmp_path, "auto")
    assert [file.format for file in files] == [*formats.values(), "csv"]
    assert [file.compression for file in files] == [None, "gzip", None, None, None]
    assert [file.delimiter for file in files] == [",", "\t", ",", ",", ","]
    assert [file.size for file in files] == [5] * 5


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("missing.txt", "does not exist, got path="),
        ("dangling", "does not exist, got path=.*dangling"),
        ("*.none", "has no files"),
        ("empty", "has no files"),
        ("pipe", "connector stdin"),
        ("nosuchprotocol://x", "fsspec cannot open the URL, .*Protocol not known"),
        ("data:,one", "fsspec cannot open the URL, .*IndexError"),
        ("zip://a::file://TMP/a.txt", "fsspec cannot open the URL, .*BadZipFile"),
        ("tar://a::file://TMP/a.txt", "fsspec cannot open the URL, .*ReadError"),
        ("filecache::simplecache::file://TMP/a.txt", "fsspec cannot open the URL, .*TypeError"),
        ([], "no path is given"),
        (["a.txt", "*.txt"], r"named twice, got name=.*a\.txt"),
    ],
)
def test_paths_without_files_or_with_one_twice_are_refused(path, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("empty/.hidden").touch()
    Path("empty/dangling").symlink_to("nowhere")
    Path("dangling").symlink_to("nowhere")
    Path("a.txt").write_text("one\n")
    os.mkfifo("pipe")
    os.mkfifo("empty/pipe")
    if isinstance(path, str):
        path = path.replace("TMP", str(tmp_path))
    with pytest.raises(SourceError, match=message):
        find_files(path, "auto")


@contextmanager
def without_rights():
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_folder_or_link_that_may_not_be_read_is_named_wherever_it_is():
    # The folders that pytest makes can be entered by their owner only.
    with tempfile.TemporaryDirectory() as name:
        top, deep = Path(name), Path(name, "a", "b")
        deep.mkdir(parents=True)
        (top / "c").write_text("one")
        with pytest.raises(InvalidSettingError, match="format"):
            find_files(top / "c", "xml")
        top.chmod(0o755)
        deep.chmod(0)
        with without_rights(), pytest.raises(SourceError, match=f"be read, got path='{deep}'"):
            find_files(name, "auto")
        deep.chmod(0o755)
        (top / "link").symlink_to("x" * 1000)
        with pytest.raises(SourceError, match=r"cannot be read, got path=.*link"):
            find_files(name, "auto")
