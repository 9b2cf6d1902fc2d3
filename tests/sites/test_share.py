"""Shares: what they add up to, how far one document moves them, what is paid, their files."""

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
from streamlda.guarantee.noise import SecureNoise, SeededNoise
from streamlda.privacy.ledger import LedgerReader
from streamlda.sites.announcement import MAX_ATTEMPTS
from streamlda.sites.keys import SiteKey
from streamlda.sites.rounds import Round
from streamlda.sites.share import Share
from streamlda.sites.site import ShareAccumulator, draw_local_noise
from tests.privacy.neighbours import distance
from tests.sites.protocol import D, Sites, add_up, giver, planted, releases, settings_of


@pytest.fixture
def at_work(tmp_path):
    with Sites.of(3, tmp_path, weights=[0.2, 0.3, 0.5]) as sites:
        yield sites


@pytest.fixture
def site(at_work):
    return at_work.sites["site0"]


@pytest.fixture
def documents(at_work):
    return giver(at_work.documents["site0"])


def raw_sums(sites, name, this, batch):
    accumulator = sites.sites[name].begin(this)
    accumulator.add(batch)
    return accumulator.sums()


def test_shares_add_up_to_the_sums_of_all_documents_and_the_noise(tmp_path):
    with Sites.of(3, tmp_path, SeededNoise(7)) as sites:
        this = sites.first
        _, stage = this.open(sites.config)
        raw = [raw_sums(sites, name, this, sites.documents[name]) for name in sites.sites]
        shares = sites.shares(this)
        again = SeededNoise(7)
        noise = [draw_local_noise(stage.mechanism, again, 1 / 3) for _ in shares]
        # One process over all documents: other groups, so roundings of the grid.
        learner, pooled = this.open(sites.config)
        slots = sites.config.allocate(stage.slots_left)
        for name, batch in sites.documents.items():
            learner.add(batch.rows(0, slots[name]))
        for name in raw[0]:
            total = sum(sums[name] for sums in raw)
            noisy = total + sum(drawn[name] for drawn in noise)
            assert np.array_equal(add_up(share.arrays[name] for share in shares), noisy)
            assert np.abs(pooled.state()[name] - total).max() <= 16


def measure_move(sites, change, row=7):
    """Return how far a change of one document of site0 moves its sums, and the sensitivity."""
    a, b = (sites.documents["site0"].to_csr().toarray() for _ in range(2))
    a[row], b[row] = change
    a, b = (
        raw_sums(sites, "site0", sites.first, DocumentBatch.from_matrix(rows)) for rows in (a, b)
    )
    mechanism = sites.first.open(sites.config)[1].mechanism
    return distance(mechanism, a, b), mechanism.l2_sensitivity


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_one_document_moves_a_share_by_the_sensitivity_and_no_more(tmp_path, relation):
    before = 0 if relation == "zero-out" else 9 * np.eye(D)[2]
    with Sites.of(2, tmp_path, neighboring_relation=relation) as sites:
        rows = 9 * np.eye(D)[3], np.ones(D), planted(1, seed=9).to_csr().toarray()[0]
        found, (bound, *_) = zip(*(measure_move(sites, (before, row)) for row in rows), strict=True)
        assert 0.99 * bound <= max(found) <= bound
        # A document where no slot is read moves nothing.
        assert measure_move(sites, (before, rows[0]), row=1500)[0] == 0


def test_sums_do_not_depend_on_how_the_stream_is_cut(at_work, this):
    documents = at_work.documents["site1"]
    whole, cut = (ShareAccumulator(this, at_work.config, "site1", 3, 200) for _ in range(2))
    whole.add(documents)
    for start in range(0, 400, 7):
        cut.add(documents.rows(start, start + 7))
    a, b = whole.sums(), cut.sums()
    assert all(np.array_equal(a[name], b[name]) for name in a)


class Watching(SecureNoise):
    """Notes what ledger and round key on the disk are whenever noise is drawn."""

    __slots__ = ("key", "path", "seen")

    def discrete_gaussian(self, sigma, shape=()):
        pending = LedgerReader(self.path).pending
        self.seen.append((pending and pending.description, self.key.read_bytes()))
        return super().discrete_gaussian(sigma, shape)


def test_the_price_is_on_the_disk_and_the_round_key_gone_before_noise_is_drawn(tmp_path):
    noise = Watching()
    noise.path, noise.seen = tmp_path / "site0.ledger", []
    with Sites.of(2, tmp_path, noise) as sites:
        noise.key = sites.round_keys("site0").path / sites.config.digest / "000001-1"
        assert len(noise.key.read_bytes()) == 32
        sites.share("site0", sites.first)
        assert noise.seen == [("round 1.1 pairs", b"")] * 4
        (shot,) = sites.sites["site0"].ledger.report()["snapshots"]
        assert shot["state"] == "committed"
        assert shot["config_hash"] == sites.first.digest
        assert shot["event"]["event"]["noise_multiplier"] == sites.config.noise_multiplier
        assert shot["documents"] == [["site0", 0, 264]]


def test_a_share_is_made_once(at_work, this, site, documents):
    path = site.make_share(this, documents)
    before = path.read_bytes()
    assert site.make_share(this, pytest.fail) == path
    assert path.read_bytes() == before
    assert releases(at_work) == {"site0": 1, "site1": 0, "site2": 0}
    with pytest.raises(LedgerError, match="share of the round is there"):
        site.begin(this)
    path.write_bytes(b"another")
    with pytest.raises(LedgerError, match="this ledger did not publish"):
        site.make_share(this, documents)


@pytest.mark.parametrize("colluders", [0, 1])
def test_slots_to_come_are_those_of_the_stages_that_come(colluders, tmp_path):
    """With colluders sites add more noise, and stages are planned for it."""
    # The plan changes with the noise here.
    changes = {"n_features": 1100, "n_components": 5, "epsilon": 3.0}
    changes |= {"documents_per_snapshot": 20_000, "refinement_rounds": None}
    with Sites.of(2, tmp_path, None, None, colluders, **changes) as sites:
        found = sum(site.count_slots_to_come(sites.first) for site in sites.sites.values())
        assert found == 20_000


def test_too_few_documents_are_refused_and_nothing_is_spent(at_work, this):
    site = at_work.sites["site1"]
    with pytest.raises(InsufficientDataError, match="got site='site1' slots=100 expected=158"):
        site.make_share(this, giver(at_work.documents["site1"].rows(0, 100)))
    assert releases(at_work)["site1"] == 0
    assert not list(site.ledger.path.parent.glob("*.releases"))
    assert site.make_share(this, giver(at_work.documents["site1"])).exists()


@pytest.mark.parametrize(("slots", "epsilon"), [(2**62, 1e-6), (2**53, 1e-3), (2**45, 1e-9)])
def test_windows_whose_sums_would_overflow_are_refused_before_a_round(tmp_path, slots, epsilon):
    with (
        pytest.raises(InvalidSettingError, match=r"must|costs more|steps of the grid"),
        Sites.of(2, tmp_path, documents_per_snapshot=slots, epsilon=epsilon),
    ):
        pytest.fail("a round was made")


def test_attempts_of_a_round_are_capped_and_need_every_site(at_work, this):
    """The attack: attempts without end, each with other documents of a site."""
    announced = list(this.keys)
    with pytest.raises(InvalidSettingError, match="an announcement is of another round"):
        this.repeat(at_work.config, announced)
    this = at_work.again(at_work.again(this))
    assert this.attempt == MAX_ATTEMPTS == 3
    with pytest.raises(InvalidSettingError, match=r"attempt must lie in 1\.\.3"):
        at_work.again(this)


class Broken(SecureNoise):
    __slots__ = ()

    def discrete_gaussian(self, sigma, shape=()):
        raise KeyboardInterrupt


def test_a_crash_while_noise_is_drawn_costs_the_share(at_work, this, site, documents):
    dying = at_work.site_of(at_work.config, at_work.keys[0], site.ledger, Broken())
    with pytest.raises(KeyboardInterrupt):
        dying.make_share(this, documents)
    assert site.ledger.recover().state == "lost"
    with pytest.raises(LedgerError, match="paid for and is lost"):
        at_work.share("site0", this)
    assert site.get_slots(at_work.again(this)) == (106, 212)


def test_documents_that_were_spent_are_not_in_another_share(at_work, this, site, documents):
    """Another round or config has masks of its own, but no documents that were in a share."""
    assert site.get_slots(this) == (0, 106)
    site.make_share(this, documents)
    assert at_work.sites["site2"].get_slots(this) == (0, 264)
    following = at_work.answer(this).next_round
    assert at_work.sites["site2"].get_slots(following) == (264, 300)
    other = replace(at_work.config, label="another study")
    assert (
        at_work.site_of(other, at_work.keys[0], site.ledger).get_slots(at_work.first_of(other))[0]
        == 106
    )
    costly = replace(other, settings=settings_of(epsilon=5.0))
    with pytest.raises(BudgetExceededError):
        at_work.site_of(costly, at_work.keys[0], site.ledger).begin(at_work.first_of(costly))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("site0", "another key for this site, got site='site0'"),
        ("west", "config has no such site, got site='west'"),
    ],
)
def test_the_keys_must_be_those_of_the_config(at_work, site, name, message):
    with pytest.raises(InvalidSettingError, match=message):
        at_work.site_of(at_work.config, SiteKey.generate(name), site.ledger)


def test_files_are_read_as_written_and_damage_is_found(at_work, tmp_path, this):
    share, path = at_work.share("site0", this), tmp_path / "file"
    share.save(path)
    found = Share.load(path)
    assert (found.content, found.signature) == (share.content, share.signature)
    with pytest.raises(ModelFileError, match="of another kind"):
        Round.load(path)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(ModelFileError, match="is damaged"):
        Share.load(path)
    for change in (
        {"site": "a/b"},
        {"arrays": {"first": np.zeros(3)}},
        {"signature": 7},
        {"round": True},
        {"attempt": 1.5},
        {"secure": 1},
        {"following": (share.following,)},
    ):
        replace(share, **change).save(path)
        with pytest.raises(ModelFileError, match="a share file is not whole"):
            Share.load(path)
    following = at_work.answer(this).next_round
    following.save(path)
    assert Round.load(path).digest == following.digest
    for change in (
        *({"number": value} for value in (0, True, 1.5, "1")),
        *({"window": value} for value in (0, -5, True, 1e308)),
        *({"attempt": value} for value in (0, 1.5, True, 2**70, MAX_ATTEMPTS + 1)),
        {"config": "00"},
        {"signature": None},
        {"keys": following.keys[0]},
        {"keys": ("west", "east")},
    ):
        replace(following, **change).save(path)
        with pytest.raises(ModelFileError, match="a round file is not whole"):
            Round.load(path)


@pytest.mark.parametrize(("kind", "path"), [("round", "first"), ("share", "share")])
def test_unknown_members_of_a_file_are_refused(at_work, this, tmp_path, monkeypatch, kind, path):
    made = this if kind == "round" else at_work.share("site0", this)
    metadata = made._metadata()
    monkeypatch.setattr(type(made), "_metadata", lambda self: {**metadata, "snapshots": -1})
    made.save(tmp_path / path)
    monkeypatch.undo()
    with pytest.raises(ModelFileError, match=f"a {kind} file is not whole.*snapshots"):
        type(made).load(tmp_path / path)
