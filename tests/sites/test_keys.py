"""Keys of sites: masks cancel, are uniform and used once; files are for their owner."""

import copy
import hashlib
import hmac
import json
import pickle
import stat
import struct
import subprocess
import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from streamlda.errors import InvalidSettingError, ModelFileError
from streamlda.sites.keys import PublicKeys, SiteKeys
from tests.sites.protocol import keys_of

SHAPES = {"first": (3,), "pair": (4, 2), "kept": ()}

#: False-alarm rate of a statistical test. Keys are other ones in each run.
ALARM = 1e-6


def masks_of(keys, context=b"one", shapes=SHAPES):
    public = [k.public for k in keys]
    return [k.mask(public, context, shapes) for k in keys]


@pytest.mark.parametrize("n", [2, 3, 6])
def test_masks_of_all_sites_sum_to_zero_and_of_fewer_do_not(n):
    keys = keys_of(n)
    masks = masks_of(keys)
    for name, shape in SHAPES.items():
        stacked = np.array([mask[name] for mask in masks])
        assert stacked.dtype == np.uint64
        assert stacked.shape == (n, *shape)
        assert not np.any(stacked.sum(axis=0))
        for left_out in range(n):
            assert np.all(np.delete(stacked, left_out, axis=0).sum(axis=0) != 0)
    # The order of members or blocks does not matter.
    other = keys[1].mask([k.public for k in keys[::-1]], b"one", dict(reversed(SHAPES.items())))
    assert all(np.array_equal(masks[1][name], other[name]) for name in SHAPES)


@given(st.binary(max_size=70), st.binary(max_size=70))
def test_another_round_has_another_mask(one, other):
    keys = keys_of(2)
    first, second = (masks_of(keys, context)[0]["first"] for context in (one, other))
    assert (one == other) == np.array_equal(first, second)
    assert (one == other) == bool(np.any(first == second))


def test_masks_are_those_of_the_written_derivation(tmp_path):
    """Derive the mask of two sites again: RFC 7748, 5869 and 8439 by hand, but for the curve."""
    keys = keys_of(2)
    keys[0].save(tmp_path / "key")
    secret = bytes.fromhex(json.loads((tmp_path / "key").read_text())["exchange"])
    other = X25519PublicKey.from_public_bytes(bytes.fromhex(keys[1].public.exchange))
    shared = X25519PrivateKey.from_private_bytes(secret).exchange(other)
    info = b"streamlda site mask 1" + b"".join(
        b"\0" + f"{k.public.name}:{k.public.exchange}".encode() for k in keys
    )
    pseudorandom = hmac.digest(b"salt", shared, hashlib.sha256)
    key = hmac.digest(pseudorandom, info + b"\1", hashlib.sha256)
    stream = b"".join(chacha_block(key, counter) for counter in range(2))
    wanted = np.frombuffer(stream, "<u8")[:11]
    found = keys[0].mask([k.public for k in keys], b"salt", {"a": (11,)})["a"]
    assert np.array_equal(found, wanted)


def chacha_block(key, counter):
    """Return a block of RFC 8439 under a nonce of zeros."""
    state = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *struct.unpack("<8L", key), counter]
    state += [0] * (16 - len(state))
    x = list(state)

    def quarter(a, b, c, d):
        for p, q, r, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[p] = (x[p] + x[q]) % 2**32
            mixed = x[r] ^ x[p]
            x[r] = (mixed << turn | mixed >> (32 - turn)) % 2**32

    for _ in range(10):
        for i in range(4):
            quarter(i, i + 4, i + 8, i + 12)
        for i in range(4):
            quarter(i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12)
    return struct.pack("<16L", *((a + b) % 2**32 for a, b in zip(x, state, strict=True)))


@pytest.mark.statistical
def test_a_mask_is_uniform_and_a_difference_of_two_sites_is_too():
    """Bytes at both ends of the words; a mask of 32 bits, say, would be found."""
    keys = keys_of(3)
    one, two, _ = (mask["a"] for mask in masks_of(keys, shapes={"a": (200_000,)}))
    for values, uniform in ((one, True), (one - two, True), (one >> np.uint64(40), False)):
        for shift in (0, 24, 56) if uniform else (24,):
            counted = np.bincount((values >> np.uint64(shift)).astype(np.uint8), minlength=256)
            assert (chisquare(counted).pvalue > ALARM) == uniform


def test_key_files_are_for_their_owner_and_never_replaced(tmp_path):
    keys, path, shown = SiteKeys.generate("north"), tmp_path / "key", tmp_path / "pub"
    for made, file in ((keys, path), (keys.public, shown)):
        made.save(file)
        with pytest.raises(FileExistsError):
            made.save(file)
    assert SiteKeys.load(path).public == PublicKeys.load(shown) == keys.public
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    with pytest.raises(ModelFileError, match="readable by its owner only"):
        SiteKeys.load(path)
    for damaged in ("[]", "{", '{"format": "streamlda-site-public-keys"}'):
        shown.write_text(damaged)
        with pytest.raises(ModelFileError, match="public keys must be as keygen wrote it"):
            PublicKeys.load(shown)


@pytest.mark.parametrize(
    "change", [lambda s: s[:40], lambda s: s.replace("1", "2"), lambda s: "[]"]
)
def test_damaged_keys_are_refused_and_not_quoted(tmp_path, change):
    path = tmp_path / "key"
    SiteKeys.generate("north").save(path)
    text = path.read_text()
    assert change(text) != text
    path.write_text(change(text))
    with pytest.raises(ModelFileError, match="as keygen wrote it") as caught:
        SiteKeys.load(path)
    assert text.split('"exchange": "')[1][:16] not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_without_the_extra_it_is_said_what_to_install():
    code = "import sys; sys.modules['cryptography'] = None; import streamlda.sites.keys"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "MissingExtraError" in done.stderr
    assert "pip install 'streamlda[sites]'" in done.stderr


def test_secret_keys_cannot_be_copied_or_shown():
    keys = SiteKeys.generate("north")
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="must not be copied"):
            copied(keys)
    assert repr(keys) == "SiteKeys(name='north')"


def test_signatures_are_those_of_the_site_and_the_content():
    one, other = keys_of(2)
    signature = one.sign(b"digest")
    assert one.public.check_signature(signature, b"digest")
    assert not one.public.check_signature(signature, b"another")
    assert not other.public.check_signature(signature, b"digest")
    assert not one.public.check_signature("not hex", b"digest")


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "x" * 64, "é", None])
def test_names_are_fit_for_files(name):
    with pytest.raises(InvalidSettingError, match="the name of a site"):
        SiteKeys.generate(name)


def test_public_keys_that_are_none_are_refused():
    keys = SiteKeys.generate("north")
    with pytest.raises(InvalidSettingError, match="64 hex digits"):
        PublicKeys("south", "00", "00" * 32)
    # A point of small order, with which every secret is the same.
    weak = PublicKeys("south", "00" * 32, "11" * 32)
    with pytest.raises(InvalidSettingError, match="one of X25519, got site='south'"):
        keys.mask([keys.public, weak], b"x", SHAPES)
