"""The checked file: any array comes back exactly, any damage is found, no write is half done."""

import errno
import hashlib
import json
import os
import resource
import stat

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from streamlda.container import MAX_HEADER_BYTES, read_arrays, write_arrays
from streamlda.errors import InvalidSettingError, ModelFileError, NewerFormatError, OlderFormatError

KIND = "streamlda-test"
ARRAYS = {
    "sums": np.arange(6.0).reshape(2, 3),
    "steps": np.array([1, -2], np.int32),
    "text": np.frombuffer("Wörter".encode(), np.uint8),
}
METADATA = {"documents": 3, "name": "größer", "nested": {"list": [1, 2.5, None, True]}}
ONES = np.ones(1)

DTYPES = [np.float64, np.float32, np.int64, np.int32, np.uint64, np.uint32, np.uint8]
any_array = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
)


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    path = tmp_path_factory.mktemp("valid") / "file"
    write_arrays(path, KIND, 1, ARRAYS, METADATA)
    return path.read_bytes()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch") / "file"


def content(scratch, data):
    scratch.write_bytes(data)
    try:
        return read_arrays(scratch, KIND, 1)
    except ModelFileError:
        return None


def forms(arrays):
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in arrays.items()}


def is_refused_or_the_same(scratch, data):
    """A header may have other white space, or members that no reader looks at."""
    found = content(scratch, data)
    same = found and (found.metadata, forms(found.arrays)) == (METADATA, forms(ARRAYS))
    return found is None or same


def split(valid):
    length = int.from_bytes(valid[:8], "little")
    return json.loads(valid[8 : 8 + length]), valid[8 + length :]


def join(header, data):
    text = header
    if isinstance(header, dict):
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def compact(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def checksum(about, arrays=ARRAYS):
    """Return the checksum as the documentation has it, by code of its own."""
    listed = [[name, str(arrays[name].dtype), arrays[name].shape] for name in sorted(arrays)]
    content = compact([about, listed]).encode() + b"\n"
    content += b"".join(arrays[name].tobytes() for name in sorted(arrays))
    return hashlib.blake2b(content, digest_size=32).hexdigest()


def forge(valid, **members):
    """Return the file with other members and the right checksum: forged, not damaged."""
    header, data = split(valid)
    about = json.loads(header["__metadata__"]["streamlda"])
    del about["blake2b"]
    about = {name: value for name, value in {**about, **members}.items() if value is not None}
    header["__metadata__"]["streamlda"] = compact({**about, "blake2b": checksum(about)})
    return join(header, data)


def test_arrays_and_metadata_come_back_exactly(scratch):
    metadata = {**METADATA, "steps": {10: 1, 9: 2}, "pair": (1, 2)}
    write_arrays(scratch, KIND, 3, ARRAYS, metadata)
    found = read_arrays(scratch, KIND, 5, oldest=3)
    assert found.metadata == {**metadata, "steps": {"10": 1, "9": 2}, "pair": [1, 2]}
    assert found.format_version == 3
    assert forms(found.arrays) == forms(ARRAYS)
    for array in found.arrays.values():
        assert array.flags.writeable
        assert array.flags.aligned


@pytest.mark.fuzz
@given(st.dictionaries(st.text(min_size=1).filter("__metadata__".__ne__), any_array, max_size=4))
def test_any_arrays_come_back_and_safetensors_reads_them(scratch, arrays):
    write_arrays(scratch, KIND, 1, arrays, {})
    found = read_arrays(scratch, KIND, 1).arrays
    other = safetensors.numpy.load_file(scratch)
    assert set(found) == set(arrays) == set(other)
    for name, array in arrays.items():
        assert found[name].shape == other[name].shape == array.shape
        assert found[name].tobytes() == other[name].tobytes() == array.tobytes()
    # To the byte as the library writes it.
    text = split(scratch.read_bytes())[0]["__metadata__"]
    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    assert scratch.read_bytes() == safetensors.numpy.save(plain, text)


def test_equal_content_gives_equal_bytes(tmp_path, valid):
    turned = {name: ARRAYS[name] for name in reversed(ARRAYS)}
    turned["sums"] = np.asfortranarray(turned["sums"])
    turned["steps"] = turned["steps"].astype(">i4")
    write_arrays(tmp_path / "file", KIND, 1, turned, dict(reversed(METADATA.items())))
    assert (tmp_path / "file").read_bytes() == valid


def test_the_documented_layout_is_the_one_on_disk(valid):
    header, data = split(valid)
    assert list(header["__metadata__"]) == ["streamlda"]
    text = header["__metadata__"]["streamlda"]
    about = json.loads(text)
    assert text == compact(about)
    assert about.pop("blake2b") == checksum(about)
    assert about == {"format": KIND, "format_version": 1, "metadata": METADATA}
    begin, end = header["sums"]["data_offsets"]
    values = np.frombuffer(data[begin:end], "<f8")
    np.testing.assert_array_equal(values.reshape(header["sums"]["shape"]), ARRAYS["sums"])


@pytest.mark.fuzz
@given(data=st.data())
def test_no_damage_gives_other_content(scratch, valid, data):
    assert content(scratch, data.draw(st.binary(max_size=300))) is None
    start = data.draw(st.integers(0, len(valid)))
    stop = data.draw(st.integers(start, min(start + 20, len(valid))))
    changed = valid[:start] + data.draw(st.binary(max_size=20)) + valid[stop:]
    assert is_refused_or_the_same(scratch, changed)


def inside(header, change):
    header["__metadata__"].update(streamlda=change(header["__metadata__"]["streamlda"]))


#: Changes of the header (h), one for each way in which it can be wrong.
CHANGED = {
    "arrays exchanged": lambda h: h.update(sums=h["steps"], steps=h["sums"]),
    "dtype NumPy has not": lambda h: h["text"].update(dtype="F8_E5M2"),
    "dtype of the same size": lambda h: h["sums"].update(dtype="I64"),
    "shape of the same size": lambda h: h["sums"].update(shape=[3, 2]),
    "shape huge and empty": lambda h: h.update(
        none={"dtype": "U8", "shape": [0, 2**63, 2], "data_offsets": [56, 56]}
    ),
    "offsets overlap": lambda h: h["steps"].update(data_offsets=[40, 48]),
    "data that nobody owns": lambda h: h.pop("text"),
    "no metadata": lambda h: h.pop("__metadata__"),
    "deep inside": lambda h: inside(h, lambda text: '{"a":' + "[" * 200_000),
    "twice inside": lambda h: inside(h, lambda text: text.replace("{", '{"format":"a",', 1)),
    "NaN inside": lambda h: inside(h, lambda text: text.replace("2.5", "NaN")),
}


def change_file(valid, case):
    header, data = split(valid)
    CHANGED[case](header)
    return join(header, data)


LENGTHS = (0, 91, MAX_HEADER_BYTES, MAX_HEADER_BYTES + 1, 2**63, 2**64 - 1)
MEMBERS = [{"format": None}, {"format": 3}, {"metadata": []}, {"metadata": None}, {"more": ""}]
MEMBERS += [{"format_version": value} for value in ("1", 1.0, True)]


def test_a_forged_header_is_refused(scratch, valid):
    cases = {case: change_file(valid, case) for case in CHANGED}
    cases |= {f"members {members}": forge(valid, **members) for members in MEMBERS}
    cases |= {f"length {n}": n.to_bytes(8, "little") + valid[8:] for n in LENGTHS}
    assert [case for case, data in cases.items() if content(scratch, data)] == []
    assert forge(valid) == valid
    for right in (valid, join(*split(valid))):
        assert content(scratch, right)


def test_what_is_refused_is_named(tmp_path):
    write_arrays(tmp_path / "file", KIND, 7, ARRAYS, METADATA)
    with pytest.raises(NewerFormatError, match=r"format_version=7 readable=2 .*upgrade streamlda"):
        read_arrays(tmp_path / "file", KIND, 2)
    with pytest.raises(OlderFormatError, match=r"format_version=7 readable=9 .*continue with"):
        read_arrays(tmp_path / "file", KIND, 9, oldest=8)
    with pytest.raises(ModelFileError, match="format='streamlda-test' wanted='streamlda-other'"):
        read_arrays(tmp_path / "file", "streamlda-other", 7)
    safetensors.numpy.save_file(ARRAYS, tmp_path / "plain", metadata={"format": KIND})
    with pytest.raises(ModelFileError, match=r"is damaged.*KeyError.*streamlda.*size_bytes"):
        read_arrays(tmp_path / "plain", KIND, 1)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_arrays(tmp_path / "nowhere", KIND, 1)
    # Without waiting for a writer.
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ModelFileError, match="regular file"):
            read_arrays(path, KIND, 1)


@pytest.mark.parametrize(
    ("arrays", "metadata", "message"),
    [
        ({"a": np.array(["text"])}, {}, "dtype=<U4"),
        ({"a": np.array([object()])}, {}, "dtype=object"),
        ({"a": np.array([1j])}, {}, "dtype=complex128"),
        ({"__metadata__": ONES}, {}, "name='__metadata__'"),
        ({}, {"a": float("nan")}, "Out of range"),
        ({}, {"a": np.float32(1)}, "not JSON serializable"),
    ],
)
def test_what_cannot_be_stored_is_refused_before_writing(tmp_path, arrays, metadata, message):
    with pytest.raises(InvalidSettingError, match=message):
        write_arrays(tmp_path / "file", KIND, 1, arrays, metadata)
    assert list(tmp_path.iterdir()) == []


def test_a_write_follows_links_and_the_umask_and_needs_its_folder(tmp_path, valid):
    path, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to("file")
    for mode, mask, wanted in ((0o666, 0o027, 0o640), (0o600, 0, 0o600)):
        before = os.umask(mask)
        try:
            write_arrays(link, KIND, 1, ARRAYS, METADATA, mode=mode)
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == wanted
    assert link.is_symlink()
    assert path.read_bytes() == valid
    with pytest.raises(FileNotFoundError, match="cannot be written") as caught:
        write_arrays(tmp_path / "none" / "file", KIND, 1, ARRAYS, METADATA)
    assert caught.value.errno == errno.ENOENT


def test_without_room_the_old_file_stays_and_nothing_is_left(tmp_path, valid):
    path, limits = tmp_path / "file", resource.getrlimit(resource.RLIMIT_FSIZE)
    path.write_bytes(valid)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="size_bytes=800") as caught:
            write_arrays(path, KIND, 1, {"a": np.ones(100_000)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == valid
    assert list(tmp_path.iterdir()) == [path]
