"""Keys of sites: masks cancel and are uniform; signatures, key files, keys of low order."""

import copy
import hashlib
import hmac
import pickle
import stat
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from streamlda.errors import InvalidSettingError, ModelFileError
from streamlda.sites.announcement import Announcement
from streamlda.sites.keys import PublicKey, RoundKey, SiteKey
from streamlda.sites.rounds import Round
from streamlda.sites.share import Share
from tests.sites.protocol import keys_of

SHAPES = {"first": (3,), "pair": (4, 2), "kept": ()}

#: False-alarm rate of a statistical test. Keys are other ones in each run.
ALARM = 1e-9


def round_keys(n):
    return [RoundKey(f"site{i}", RoundKey.random()) for i in range(n)]


def public(keys):
    return {key.site: key.exchange for key in keys}


def masks_of(keys, context=b"one", shapes=SHAPES):
    return [key.mask(public(keys), context, shapes) for key in keys]


@pytest.mark.parametrize("n", [2, 3, 6])
def test_masks_of_all_sites_sum_to_zero_and_of_fewer_do_not(n):
    keys = round_keys(n)
    masks = masks_of(keys)
    for name, shape in SHAPES.items():
        stacked = np.array([mask[name] for mask in masks])
        assert stacked.dtype == np.uint64
        assert stacked.shape == (n, *shape)
        assert not np.any(stacked.sum(axis=0))
        for left_out in range(n):
            assert np.all(np.delete(stacked, left_out, axis=0).sum(axis=0) != 0)
    # The order of members or blocks does not matter.
    other = keys[1].mask(public(keys[::-1]), b"one", dict(reversed(SHAPES.items())))
    assert all(np.array_equal(masks[1][name], other[name]) for name in SHAPES)


@given(st.binary(max_size=70), st.binary(max_size=70))
def test_another_round_has_another_mask(one, other):
    keys = round_keys(2)
    first, second = (masks_of(keys, context)[0]["first"] for context in (one, other))
    assert (one == other) == np.array_equal(first, second)
    assert (one == other) == bool(np.any(first == second))


def test_masks_are_those_of_the_written_derivation():
    """Derive the mask of two sites again: RFC 5869 by hand, X25519 and ChaCha20 of the library."""
    secret = RoundKey.random()
    keys = [RoundKey("site0", secret), *round_keys(2)[1:]]
    other = X25519PublicKey.from_public_bytes(bytes.fromhex(keys[1].exchange))
    shared = X25519PrivateKey.from_private_bytes(secret).exchange(other)
    info = b"streamlda site mask 2" + b"".join(
        b"\0" + f"{key.site}:{key.exchange}".encode() for key in keys
    )
    pseudorandom = hmac.digest(b"salt", shared, hashlib.sha256)
    key = hmac.digest(pseudorandom, info + b"\1", hashlib.sha256)
    stream = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    wanted = np.frombuffer(stream.update(bytes(88)), "<u8")
    found = keys[0].mask(public(keys), b"salt", {"a": (11,)})["a"]
    assert np.array_equal(found, wanted)


@pytest.mark.statistical
def test_a_mask_is_uniform_and_a_difference_of_two_sites_is_too():
    """Bytes at both ends of the words; a mask of 32 bits, say, would be found."""
    keys = round_keys(3)
    one, two, _ = (mask["a"] for mask in masks_of(keys, shapes={"a": (200_000,)}))
    for values, uniform in ((one, True), (one - two, True), (one >> np.uint64(40), False)):
        for shift in (0, 24, 56) if uniform else (24,):
            counted = np.bincount((values >> np.uint64(shift)).astype(np.uint8), minlength=256)
            assert (chisquare(counted).pvalue > ALARM) == uniform


def test_key_files_are_for_their_owner_and_never_replaced(tmp_path):
    keys, path, shown = SiteKey.generate("north"), tmp_path / "key", tmp_path / "pub"
    for made, file in ((keys, path), (keys.public, shown)):
        made.save(file)
        with pytest.raises(FileExistsError):
            made.save(file)
    assert SiteKey.load(path).public == PublicKey.load(shown) == keys.public
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    with pytest.raises(ModelFileError, match="readable by others"):
        SiteKey.load(path)
    for damaged in ("[]", "{", '{"format": "streamlda-site-public-keys"}'):
        shown.write_text(damaged)
        with pytest.raises(ModelFileError, match="a public key is not as keygen wrote it"):
            PublicKey.load(shown)


@pytest.mark.parametrize(
    "change", [lambda s: s[:40], lambda s: s.replace("name", "site"), lambda s: "[]"]
)
def test_damaged_keys_are_refused_and_not_quoted(tmp_path, change):
    path = tmp_path / "key"
    SiteKey.generate("north").save(path)
    text = path.read_text()
    assert change(text) != text
    path.write_text(change(text))
    with pytest.raises(ModelFileError, match="as keygen wrote it") as caught:
        SiteKey.load(path)
    assert text.split('"signing": "')[1][:16] not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_without_the_extra_it_is_said_what_to_install():
    code = "import sys; sys.modules['cryptography'] = None; import streamlda.sites.keys"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert "MissingExtraError" in done.stderr
    assert "pip install 'cryptography>=" in done.stderr


def test_secret_keys_cannot_be_copied_or_shown():
    keys = SiteKey.generate("north")
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            copied(keys)
    assert repr(keys) == "SiteKey(name='north')"


def test_signatures_are_those_of_the_site_the_content_and_the_kind():
    one, other = keys_of(2)
    signature = one.sign(Share.purpose, b"digest")
    assert one.public.check_signature(Share.purpose, signature, b"digest")
    assert not one.public.check_signature(Share.purpose, signature, b"another")
    assert not one.public.check_signature(Round.purpose, signature, b"digest")
    assert not one.public.check_signature(Announcement.purpose, signature, b"digest")
    assert not other.public.check_signature(Share.purpose, signature, b"digest")
    assert not one.public.check_signature(Share.purpose, "not hex", b"digest")


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "x" * 64, "é", None])
def test_names_are_fit_for_files(name):
    with pytest.raises(InvalidSettingError, match="the name of a site"):
        SiteKey.generate(name)


FIELD = 2**255 - 19


def hex_of(number):
    return number.to_bytes(32, "little").hex()


#: Points of order 1, 2, 4 and 8 of Curve25519 and its twist (RFC 7748, section 6.1).
SMALL_EXCHANGE_KEYS = [
    hex_of(u)
    for u in (
        *(0, 1, FIELD - 1, FIELD, FIELD + 1),
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    )
]

#: The same of Ed25519 in both signs: 1, -1, 0, and two of order 8, for which 2 y^2 = 1 - d y^4.
SMALL_SIGNING_KEYS = [
    hex_of(y | sign)
    for y in (
        *(0, 1, FIELD - 1, FIELD, FIELD + 1),
        2707385501144840649318225287225658788936804267575313519463743609750303402022,
        55188659117513257062467267217118295137698188065244968500265048394206261417927,
    )
    for sign in (0, 1 << 255)
]


def announce(key):
    return Announcement("south", "0" * 64, 1, 1, key)


@pytest.mark.parametrize(
    ("make", "key"),
    [
        *((announce, key) for key in SMALL_EXCHANGE_KEYS),
        *((partial(PublicKey, "south"), key) for key in SMALL_SIGNING_KEYS),
    ],
)
def test_keys_of_low_order_are_refused_where_they_are_read(make, key):
    """The attack: every secret with such a key is the same, and everybody can sign with it."""
    with pytest.raises(InvalidSettingError, match="is of low order, got site='south'"):
        make(key)
    with pytest.raises(InvalidSettingError, match="64 hex digits"):
        make(key[:-1] + "z")
    assert announce(round_keys(1)[0].exchange)
