"""Keys of a round: used once, gone from the disk before noise is drawn, and of no use later."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from streamlda.container import temporary_name
from streamlda.errors import LedgerError
from streamlda.privacy.ledger import Ledger
from streamlda.sites.keys import RoundKey
from streamlda.sites.site import Site
from tests.sites.protocol import Sites, giver


def test_a_round_key_masks_one_share_whatever_the_ledger_says(tmp_path):
    with Sites.of(2, tmp_path) as sites:
        this, key, documents = sites.first, sites.keys[0], giver(sites.documents["site0"])

        def site_of(name):
            ledger = Ledger.open(tmp_path / name, sites.config.ledger_terms, create=True)
            return sites.site_of(sites.config, key, sites.opened.enter_context(ledger))

        one, other = site_of("a"), site_of("b")
        # Both have begun: the second finds out when the first has drawn.
        late = other.begin(this)
        documents(late)
        path = one.make_share(this, documents)
        assert one.make_share(this, documents) == path
        kept = sites.round_keys("site0").path / sites.config.digest / "ledger"
        assert kept.read_text("ascii") == one.ledger.ledger_id
        with pytest.raises(LedgerError, match="paid from another ledger"):
            other.publish(late)
        with pytest.raises(LedgerError, match="paid from another ledger"):
            Site(sites.config, key, sites.round_keys("site0"), other.ledger, "x", None, 99)
        assert other.ledger.generation == 0
        kept.unlink()
        with pytest.raises(LedgerError, match="round key of this round was used"):
            other.publish(late)
        other.ledger.recover()
        with pytest.raises(LedgerError, match="share of the round was paid for"):
            other.begin(this)
        kept.unlink()
        fresh = sites.opened.enter_context(
            Ledger.open(tmp_path / "c", sites.config.ledger_terms, create=True)
        )
        at_work = Site(
            sites.config, key, sites.round_keys("site0"), fresh, "x", max_epsilon_alone=99
        )
        with pytest.raises(LedgerError, match="round key of this round was used"):
            at_work.make_share(this, documents)
        assert fresh.generation == 0
        assert at_work.make_share(sites.again(this), documents).exists()


def kept_keys(sites, name="site0"):
    """Return the bytes of each round key that is on the disk of a site, by its file."""
    folder = sites.round_keys(name).path / sites.config.digest
    return {path.name: path.read_bytes() for path in folder.glob("0*")}


def test_all_that_a_site_has_on_disk_opens_no_mask_of_the_past(tmp_path):
    """The attack: keys that are stolen later, tried on a share that was intercepted."""
    with Sites.of(3, tmp_path) as sites:
        this = sites.first
        before = kept_keys(sites)
        share = sites.share("site0", this)
        stolen = [secret for secret in kept_keys(sites).values() if secret]
        shapes = {name: values.shape for name, values in share.arrays.items()}

        def opened(secret):
            mask = RoundKey("site0", secret).mask(this.exchanges, this.context, shapes)
            left = (share.arrays["first"] - mask["first"]).view(np.int64)
            return np.abs(left.astype(float)).max() < 2.0**56

        # With the key from before the share it would be open: the test can fail.
        assert opened(before["000001-1"])
        # What is there now is the key of round 2, which the share announced.
        assert len(stolen) == 1
        assert RoundKey("site0", stolen[0]).exchange == share.following.exchange
        assert not opened(stolen[0])
        sites.keys[0].save(tmp_path / "identity")
        signing = json.loads((tmp_path / "identity").read_text("ascii"))["signing"]
        assert not opened(bytes.fromhex(signing))


def test_a_crash_while_a_round_key_is_destroyed_leaves_none_that_works(tmp_path):
    """Zeros that were not cut off yet, or half a key: it is used, and no other takes its place."""
    with Sites.of(2, tmp_path) as sites:
        keys = sites.round_keys("site0")
        path, own = keys.path / sites.config.digest / "000001-1", sites.first.get_key("site0")
        whole = path.read_bytes()
        for left in (bytes(32), whole[:31], b""):
            path.write_bytes(left)
            for call in (
                lambda: keys.check(own),
                lambda: keys.take(own),
                lambda: sites.announce("site0", sites.config, 1, 1),
            ):
                with pytest.raises(LedgerError, match="was used or is not here"):
                    call()
        # One that a crash cut off before its announcement left is made again.
        path.with_name(temporary_name("0")).write_bytes(whole[:5])
        second = sites.announce("site0", sites.config, 2, 1)
        assert sites.announce("site0", sites.config, 2, 1) == second
        assert keys.take(second).exchange == second.exchange


def test_two_that_take_a_round_key_at_once_get_it_once(tmp_path):
    with Sites.of(2, tmp_path) as sites:
        own, keys = sites.first.get_key("site0"), sites.round_keys("site0")

        def take(_):
            try:
                return keys.take(own)
            except LedgerError:
                return None

        with ThreadPoolExecutor(8) as pool:
            assert sum(key is not None for key in pool.map(take, range(8))) == 1
