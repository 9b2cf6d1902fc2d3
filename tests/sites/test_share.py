"""Shares: what they add up to, how far one document moves them, what is paid, their files."""

import math
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.errors import (
    BudgetExceededError,
    InsufficientDataError,
    InvalidSettingError,
    LedgerError,
    ModelFileError,
)
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.ledger import Ledger, LedgerReader
from streamlda.privacy.noise import SecureNoise, SeededNoise
from streamlda.private import contributions
from streamlda.sites.aggregate import aggregate
from streamlda.sites.answered import AnsweredRounds
from streamlda.sites.keys import SiteKeys
from streamlda.sites.rounds import Round
from streamlda.sites.share import Share
from streamlda.sites.site import ShareAccumulator, Site, local_noise
from tests.sites.protocol import (
    D,
    Sites,
    added,
    config_of,
    counts_of,
    filled,
    keys_of,
    planted,
    settings_of,
    spent,
)


@pytest.fixture
def at_work(tmp_path):
    keys = keys_of(3)
    with Sites(config_of(keys, weights=[0.2, 0.3, 0.5]), keys, tmp_path) as sites:
        yield sites


@pytest.fixture
def site(at_work):
    return at_work.sites["site0"]


@pytest.fixture
def documents(at_work):
    return filled(at_work.documents["site0"])


def raw_sums(sites, name, this, batch):
    """Return what a site sums before noise and mask."""
    accumulator = sites.sites[name].begin(this)
    accumulator.add(batch)
    return accumulator.sums()


def test_shares_add_up_to_the_sums_of_all_documents_and_the_noise(tmp_path):
    keys = keys_of(3)
    with Sites(config_of(keys), keys, tmp_path, SeededNoise(7)) as sites:
        this = Round.first(sites.config)
        _, stage = this.open(sites.config)
        raw = [raw_sums(sites, name, this, sites.documents[name]) for name in sites.sites]
        shares = sites.shares(this)
        again = SeededNoise(7)
        noise = [local_noise(stage.mechanism, again, 1 / 3) for _ in shares]
        for name, counts in raw[0].items():
            total = added(share.arrays[name] for share in shares)
            assert np.array_equal(
                total, sum(sums[name] + g[name] for sums, g in zip(raw, noise, strict=True))
            )
            # One process over all documents: other groups, so roundings of the grid.
            engine, pooled = this.open(sites.config)
            n = sites.config.allocation(stage.slots_left)
            for site, batch in sites.documents.items():
                engine.add(batch.rows(0, n[site]))
            assert np.abs(pooled.state()[name] - sum(sums[name] for sums in raw)).max() <= 16
            assert counts.dtype == np.int64


def distance(sites, this, one, other):
    """Return how far apart the raw sums of site0 are, in weighted coordinates."""
    a, b = (raw_sums(sites, "site0", this, DocumentBatch.from_matrix(x)) for x in (one, other))
    mechanism = this.open(sites.config)[1].mechanism
    square = 0.0
    for block in mechanism.blocks:
        apart = (b[block.name] - a[block.name]) * mechanism.steps[block.name]
        square += mechanism.fractions[block.name] * np.sum((apart / block.l2_clip_norm) ** 2)
    return math.sqrt(square), mechanism.l2_sensitivity


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_one_document_moves_a_share_by_the_sensitivity_and_no_more(tmp_path, relation):
    keys = keys_of(2)
    with Sites(config_of(keys, settings_of(neighboring_relation=relation)), keys, tmp_path) as s:
        this = Round.first(s.config)
        base = counts_of(s.documents["site0"])
        base[7] = 0 if relation == "add-remove" else 9 * np.eye(D)[2]
        largest = 0.0
        for row in (9 * np.eye(D)[3], np.ones(D), counts_of(planted(1, seed=9))[0]):
            other = base.copy()
            other[7] = row
            found, bound = distance(s, this, base, other)
            largest = max(largest, found)
            assert found <= bound
        assert largest >= 0.99 * bound
        # A document of one site that is added where no slot is read moves nothing.
        other = base.copy()
        other[1500] = 9 * np.eye(D)[3]
        assert distance(s, this, base, other)[0] == 0


def test_a_forgotten_clip_moves_a_share_by_more_than_the_sensitivity(tmp_path, monkeypatch):
    keys = keys_of(2)
    bounds = ClipBounds(0.5, 0.4, 1.0, "fixed")
    with Sites(config_of(keys, settings_of(clipping=bounds)), keys, tmp_path) as s:
        this = Round.first(s.config)
        base = counts_of(s.documents["site0"])
        other = base.copy()
        base[7], other[7] = 0, 9 * np.eye(D)[3]
        found, bound = distance(s, this, base, other)
        assert 0.97 * bound <= found <= bound
        monkeypatch.setattr(contributions, "clip_factors", lambda norms, b: np.ones(len(norms)))
        found, bound = distance(s, this, base, other)
        assert found > 2 * bound


def test_sums_do_not_depend_on_how_the_stream_is_cut(at_work, this):
    documents = at_work.documents["site1"]
    whole = raw_sums(at_work, "site1", this, documents)
    at_work.share("site1", this)
    later = ShareAccumulator(this, at_work.config, "site1", 3, 200)
    cut = ShareAccumulator(this, at_work.config, "site1", 3, 200)
    later.add(documents)
    for start in range(0, 400, 7):
        cut.add(documents.rows(start, start + 7))
    a, b = later.sums(), cut.sums()
    assert all(np.array_equal(a[name], b[name]) for name in a)
    assert any(np.any(a[name] != whole[name]) for name in a)


class Watching(SecureNoise):
    """Notes what the ledger on the disk says whenever noise is drawn."""

    __slots__ = ("path", "seen")

    def discrete_gaussian(self, sigma, shape=()):
        pending = LedgerReader(self.path).pending
        self.seen.append(pending and pending.description)
        return super().discrete_gaussian(sigma, shape)


def test_the_price_is_on_the_disk_before_noise_is_drawn(tmp_path):
    keys, noise = keys_of(2), Watching()
    noise.path, noise.seen = tmp_path / "site0.ledger", []
    with Sites(config_of(keys), keys, tmp_path, noise) as sites:
        this = Round.first(sites.config)
        sites.share("site0", this)
        assert noise.seen == ["round 1.1 pairs"] * 4
        (shot,) = sites.sites["site0"].ledger.report()["snapshots"]
        assert shot["state"] == "committed"
        assert shot["config_hash"] == this.digest
        assert shot["event"]["noise_multiplier"] == sites.config.noise_multiplier
        assert shot["documents"] == [["site0", 0, 264]]


def test_a_share_is_made_once(at_work, this, site, documents):
    path = site.make_share(this, documents)
    before = path.read_bytes()
    assert site.make_share(this, pytest.fail) == path
    assert path.read_bytes() == before
    assert spent(at_work) == {"site0": 1, "site1": 0, "site2": 0}
    with pytest.raises(LedgerError, match="one share of a round, and that of this round is there"):
        site.begin(this)
    path.write_bytes(b"another")
    with pytest.raises(LedgerError, match="only the one that this ledger published there"):
        site.make_share(this, documents)


def test_too_few_documents_are_refused_and_nothing_is_spent(at_work, this):
    site = at_work.sites["site1"]
    with pytest.raises(InsufficientDataError, match="got site='site1' slots=100 expected=158"):
        site.make_share(this, filled(at_work.documents["site1"].rows(0, 100)))
    assert spent(at_work)["site1"] == 0
    assert not list(site.ledger.path.parent.glob("*.shares"))
    assert site.make_share(this, filled(at_work.documents["site1"])).exists()


def test_a_lost_share_is_paid_for_and_the_round_is_begun_again(at_work, this, site, documents):
    path = site.make_share(this, documents)
    lost = Share.load(path)
    path.unlink()
    message = "lost and is paid for, got site='site0' round=1 attempt=1"
    with pytest.raises(LedgerError, match=message):
        site.make_share(this, documents)
    again = this.again()
    share = at_work.share("site0", again)
    assert share.attempt == 2
    assert spent(at_work)["site0"] == 2
    # Other masks and documents: no value is alike.
    for name, values in share.arrays.items():
        assert not np.any(values == lost.arrays[name])
    assert aggregate(at_work.config, again, at_work.shares(again)).released
    with pytest.raises(LedgerError, match="lost and is paid for"):
        site.begin(this)


def test_keys_mask_one_share_of_a_round_whatever_the_ledger_says(tmp_path):
    keys, documents = keys_of(2), filled(planted(2000))
    config, answered = config_of(keys), AnsweredRounds(tmp_path / "key")
    this = Round.first(config)
    with ExitStack() as opened:

        def site_of(name):
            ledger = Ledger.open(tmp_path / name, config.ledger_terms(), create=True)
            opened.enter_context(ledger)
            return Site(config, keys[0], ledger, "site0", answered=answered)

        one, other = site_of("a"), site_of("b")
        # Both have begun: the second finds out when the first has drawn.
        late = other.begin(this)
        documents(late)
        path = one.make_share(this, documents)
        assert one.make_share(this, documents) == path
        with pytest.raises(LedgerError, match="keys must mask one share of a round"):
            other.publish(late)
        other.ledger.recover()
        with pytest.raises(LedgerError, match="that of this round was lost"):
            other.begin(this)
        fresh = site_of("c")
        with pytest.raises(LedgerError, match="keys must mask one share of a round"):
            fresh.make_share(this, documents)
        assert fresh.ledger.generation == 0
        assert fresh.make_share(this.again(), documents).exists()
    assert answered.path.read_text("ascii").split() == [this.digest, this.again().digest]


def test_a_record_that_a_crash_cut_off_is_gone_on_with(tmp_path):
    used = AnsweredRounds(tmp_path / "key")
    used.record("a" * 64)
    with used.path.open("ab") as file:
        file.write(b"b" * 20)
    used.check("b" * 64)
    used.record("b" * 64)
    for digest in ("a" * 64, "b" * 64):
        with pytest.raises(LedgerError, match=f"digest='{digest[:16]}"):
            used.record(digest)


class Broken(SecureNoise):
    """A process that dies as it draws."""

    __slots__ = ()

    def discrete_gaussian(self, sigma, shape=()):
        raise KeyboardInterrupt


def test_a_crash_while_noise_is_drawn_costs_the_share(at_work, this, site, documents):
    ledger = site.ledger
    dying = Site(at_work.config, at_work.keys[0], ledger, "site0", Broken())
    with pytest.raises(KeyboardInterrupt):
        dying.make_share(this, documents)
    ended = ledger.recover()
    assert ended is not None
    assert ended.outcome == "lost"
    with pytest.raises(LedgerError, match="lost and is paid for"):
        at_work.share("site0", this)
    assert site.slots_wanted(this.again()) == (106, 212)


def test_documents_that_were_spent_are_not_in_another_share(at_work, this, site, documents):
    """Another round or config has masks of its own, but no documents that were in a share."""
    assert site.slots_wanted(this) == (0, 106)
    site.make_share(this, documents)
    assert at_work.sites["site2"].slots_wanted(this) == (0, 264)
    following = at_work.answer(this).next_round
    assert at_work.sites["site2"].slots_wanted(following) == (264, 300)
    other = replace(at_work.config, label="another study")
    of_other = Site(other, at_work.keys[0], site.ledger, "site0")
    assert of_other.slots_wanted(Round.first(other))[0] == 106
    costly = replace(other, settings=settings_of(epsilon=5.0))
    with pytest.raises(BudgetExceededError):
        Site(costly, at_work.keys[0], site.ledger, "site0").begin(Round.first(costly))


def test_the_keys_must_be_those_of_the_config(at_work, site):
    ledger = site.ledger
    with pytest.raises(InvalidSettingError, match="these are others, got site='site0'"):
        Site(at_work.config, SiteKeys.generate("site0"), ledger, "site0")
    with pytest.raises(InvalidSettingError, match="in the federation config, got site='west'"):
        Site(at_work.config, SiteKeys.generate("west"), ledger, "site0")


def test_share_files_are_read_as_written_and_damage_is_found(at_work, tmp_path, this):
    share, path = at_work.share("site0", this), tmp_path / "share"
    share.save(path)
    found = Share.load(path)
    assert (found.content, found.signature) == (share.content, share.signature)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ModelFileError, match="whole and unaltered"):
        Share.load(path)


@pytest.mark.parametrize(
    "change", [{"site": "a/b"}, {"arrays": {"first": np.zeros(3)}}, {"signature": 7}]
)
def test_files_that_hold_no_share_are_refused(at_work, tmp_path, change):
    share = replace(at_work.share("site0", Round.first(at_work.config)), **change)
    share.save(tmp_path / "share")
    with pytest.raises(ModelFileError, match="a share file must be whole"):
        Share.load(tmp_path / "share")


def test_round_files_are_read_as_written_and_damage_is_found(at_work, tmp_path):
    this = at_work.answer(Round.first(at_work.config)).next_round
    assert this is not None
    this.save(tmp_path / "round")
    assert Round.load(tmp_path / "round").digest == this.digest
    replace(this, number=0).save(tmp_path / "round")
    with pytest.raises(ModelFileError, match="a round file must be whole"):
        Round.load(tmp_path / "round")
    at_work.share("site0", this).save(tmp_path / "share")
    with pytest.raises(ModelFileError, match="of the wanted kind"):
        Round.load(tmp_path / "share")
