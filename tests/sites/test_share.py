"""Shares: what they add up to, how far one document moves them, what is paid, what is refused."""

import math
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
from streamlda.sites.keys import SiteKeys
from streamlda.sites.rounds import NOT_NEGATIVE, POSITIVE, Round
from streamlda.sites.share import Share
from streamlda.sites.site import Site, Summing, local_noise
from streamlda.sites.used import UsedRounds
from tests.sites.protocol import (
    D,
    Sites,
    added,
    counts_of,
    keys_of,
    planted,
    roster_of,
    settings_of,
)


@pytest.fixture
def at_work(tmp_path):
    keys = keys_of(3)
    with Sites(roster_of(keys, weights=[0.2, 0.3, 0.5]), keys, tmp_path) as sites:
        yield sites


def spent(sites):
    return {name: site.ledger.generation for name, site in sites.sites.items()}


def raw_sums(sites, name, this, batch):
    """Return what a site sums before noise and mask."""
    summing = sites.sites[name].begin(this)
    summing.add(batch)
    return summing.sums()


def test_shares_add_up_to_the_sums_of_all_documents_and_the_noise(tmp_path):
    keys = keys_of(3)
    with Sites(roster_of(keys), keys, tmp_path, SeededNoise(7)) as sites:
        this = Round.first(sites.roster)
        _, stage = this.open(sites.roster)
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
            engine, pooled = this.open(sites.roster)
            n = sites.roster.deal(stage.slots_left)
            for site, batch in sites.documents.items():
                engine.add(batch.rows(0, n[site]))
            assert np.abs(pooled.state()[name] - sum(sums[name] for sums in raw)).max() <= 16
            assert counts.dtype == np.int64


def moved(sites, this, one, other):
    """Return how far apart the raw sums of site0 are, in weighted coordinates."""
    a, b = (raw_sums(sites, "site0", this, DocumentBatch.from_matrix(x)) for x in (one, other))
    mechanism = this.open(sites.roster)[1].mechanism
    square = 0.0
    for block in mechanism.blocks:
        apart = (b[block.name] - a[block.name]) * mechanism.steps[block.name]
        square += mechanism.fractions[block.name] * np.sum((apart / block.l2_clip_norm) ** 2)
    return math.sqrt(square), mechanism.l2_sensitivity


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_one_document_moves_a_share_by_the_sensitivity_and_no_more(tmp_path, relation):
    keys = keys_of(2)
    with Sites(roster_of(keys, settings_of(neighboring_relation=relation)), keys, tmp_path) as s:
        this = Round.first(s.roster)
        base = counts_of(s.documents["site0"])
        base[7] = 0 if relation == "add-remove" else 9 * np.eye(D)[2]
        largest = 0.0
        for row in (9 * np.eye(D)[3], np.ones(D), counts_of(planted(1, seed=9))[0]):
            other = base.copy()
            other[7] = row
            found, bound = moved(s, this, base, other)
            largest = max(largest, found)
            assert found <= bound
        assert largest >= 0.99 * bound
        # A document of one site that is added where no place is read moves nothing.
        other = base.copy()
        other[1500] = 9 * np.eye(D)[3]
        assert moved(s, this, base, other)[0] == 0


def test_a_forgotten_clip_moves_a_share_by_more_than_the_sensitivity(tmp_path, monkeypatch):
    keys = keys_of(2)
    bounds = ClipBounds(0.5, 0.4, 1.0, "fixed")
    with Sites(roster_of(keys, settings_of(clipping=bounds)), keys, tmp_path) as s:
        this = Round.first(s.roster)
        base = counts_of(s.documents["site0"])
        other = base.copy()
        base[7], other[7] = 0, 9 * np.eye(D)[3]
        found, bound = moved(s, this, base, other)
        assert 0.97 * bound <= found <= bound
        monkeypatch.setattr(contributions, "clip_factors", lambda norms, b: np.ones(len(norms)))
        found, bound = moved(s, this, base, other)
        assert found > 2 * bound


def test_sums_do_not_depend_on_how_the_stream_is_cut(at_work):
    this = Round.first(at_work.roster)
    documents = at_work.documents["site1"]
    whole = raw_sums(at_work, "site1", this, documents)
    at_work.share("site1", this)
    later = Summing(this, at_work.roster, "site1", 3, 200)
    cut = Summing(this, at_work.roster, "site1", 3, 200)
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
    with Sites(roster_of(keys), keys, tmp_path, noise) as sites:
        this = Round.first(sites.roster)
        sites.share("site0", this)
        assert noise.seen == ["round 1.1 pairs"] * 4
        (shot,) = sites.sites["site0"].ledger.report()["snapshots"]
        assert shot["state"] == "committed"
        assert shot["config_hash"] == this.digest
        assert shot["event"]["noise_multiplier"] == sites.roster.noise_multiplier
        assert shot["documents"] == [["site0", 0, 264]]


def test_a_share_is_made_once(at_work):
    this = Round.first(at_work.roster)
    site = at_work.sites["site0"]
    path = site.make_share(this, [at_work.documents["site0"]])
    before = path.read_bytes()

    def never():
        pytest.fail("nothing must be read for a share that is there")
        yield

    assert site.make_share(this, never()) == path
    assert path.read_bytes() == before
    assert spent(at_work) == {"site0": 1, "site1": 0, "site2": 0}
    with pytest.raises(LedgerError, match="one share of a round, and that of this round is there"):
        site.begin(this)


def test_the_next_round_reads_on_behind_the_last(at_work):
    this = Round.first(at_work.roster)
    assert at_work.sites["site2"].slots_wanted(this) == (0, 264)
    following = at_work.answer(this).next_round
    assert following is not None
    assert at_work.sites["site2"].slots_wanted(following) == (264, 300)


def test_too_few_documents_are_refused_and_nothing_is_spent(at_work):
    this = Round.first(at_work.roster)
    site = at_work.sites["site1"]
    with pytest.raises(InsufficientDataError, match="got site='site1' places=100 expected=158"):
        site.make_share(this, [at_work.documents["site1"].rows(0, 100)])
    assert spent(at_work)["site1"] == 0
    assert not list(site.ledger.path.parent.glob("*.shares"))
    assert site.make_share(this, [at_work.documents["site1"]]).exists()


def test_a_lost_share_is_paid_for_and_the_round_is_begun_again(at_work):
    this = Round.first(at_work.roster)
    site = at_work.sites["site0"]
    path = site.make_share(this, [at_work.documents["site0"]])
    lost = Share.load(path)
    path.unlink()
    with pytest.raises(LedgerError, match=r"lost and is paid for: site='site0' round=1 attempt=1"):
        site.make_share(this, [at_work.documents["site0"]])
    again = this.again()
    share = at_work.share("site0", again)
    assert share.attempt == 2
    assert spent(at_work)["site0"] == 2
    # Other masks and documents: no value is alike.
    for name, values in share.arrays.items():
        assert not np.any(values == lost.arrays[name])
    assert aggregate(at_work.roster, again, at_work.shares(again)).released
    with pytest.raises(LedgerError, match="lost and is paid for"):
        site.begin(this)


def test_something_else_in_the_place_of_a_share_is_refused(at_work):
    this = Round.first(at_work.roster)
    site = at_work.sites["site0"]
    path = site.make_share(this, [at_work.documents["site0"]])
    path.write_bytes(b"another")
    with pytest.raises(LedgerError, match="only the one that this ledger published there"):
        site.make_share(this, [at_work.documents["site0"]])


def test_keys_mask_one_share_of_a_round_whatever_the_ledger_says(tmp_path):
    keys = keys_of(2)
    roster, used = roster_of(keys), UsedRounds(tmp_path / "key")
    documents, this = planted(2000), Round.first(roster)
    sites = []
    for name in ("a", "b"):
        ledger = Ledger.open(tmp_path / name, roster.ledger_terms(), create=True)
        sites.append(Site(roster, keys[0], ledger, "site0", used=used))
    try:
        # Both have begun: the second finds out when the first has drawn.
        late = sites[1].begin(this)
        late.add(documents)
        path = sites[0].make_share(this, [documents])
        assert sites[0].make_share(this, [documents]) == path
        with pytest.raises(LedgerError, match="keys must mask one share of a round"):
            sites[1].publish(late)
        sites[1].ledger.recover()
        with pytest.raises(LedgerError, match="that of this round was lost"):
            sites[1].begin(this)
        fresh = Ledger.open(tmp_path / "c", roster.ledger_terms(), create=True)
        sites.append(Site(roster, keys[0], fresh, "site0", used=used))
        with pytest.raises(LedgerError, match="keys must mask one share of a round"):
            sites[2].make_share(this, [documents])
        assert fresh.generation == 0
        assert sites[2].make_share(this.again(), [documents]).exists()
    finally:
        for site in sites:
            site.ledger.close()
    assert used.path.read_text("ascii").split() == [this.digest, this.again().digest]


def test_a_record_that_a_crash_cut_off_is_gone_on_with(tmp_path):
    used = UsedRounds(tmp_path / "key")
    used.record("a" * 64)
    with used.path.open("ab") as file:
        file.write(b"b" * 20)
    used.check("b" * 64)
    used.record("b" * 64)
    for digest in ("a" * 64, "b" * 64):
        with pytest.raises(LedgerError, match=f"digest={digest[:16]}"):
            used.record(digest)


class Broken(SecureNoise):
    """A process that dies as it draws."""

    __slots__ = ()

    def discrete_gaussian(self, sigma, shape=()):
        raise KeyboardInterrupt


def test_a_crash_while_noise_is_drawn_costs_the_share(at_work):
    this = Round.first(at_work.roster)
    ledger = at_work.sites["site0"].ledger
    dying = Site(at_work.roster, at_work.keys[0], ledger, "site0", Broken())
    with pytest.raises(KeyboardInterrupt):
        dying.make_share(this, [at_work.documents["site0"]])
    ended = ledger.recover()
    assert ended is not None
    assert ended.outcome == "lost"
    with pytest.raises(LedgerError, match="lost and is paid for"):
        at_work.share("site0", this)
    assert at_work.sites["site0"].slots_wanted(this.again()) == (106, 212)


def test_documents_that_were_spent_are_not_in_another_share(at_work):
    """Another roster has rounds of its own, and masks, but no other documents."""
    this = Round.first(at_work.roster)
    at_work.share("site0", this)
    other = replace(at_work.roster, label="another study")
    site = Site(other, at_work.keys[0], at_work.sites["site0"].ledger, "site0")
    assert site.slots_wanted(Round.first(other))[0] == 106
    dearer = replace(other, settings=settings_of(epsilon=5.0))
    site = Site(dearer, at_work.keys[0], at_work.sites["site0"].ledger, "site0")
    with pytest.raises(BudgetExceededError):
        site.begin(Round.first(dearer))


def test_the_keys_must_be_those_of_the_roster(at_work):
    ledger = at_work.sites["site0"].ledger
    with pytest.raises(InvalidSettingError, match="others for site='site0'"):
        Site(at_work.roster, SiteKeys.generate("site0"), ledger, "site0")
    with pytest.raises(InvalidSettingError, match="on the roster, got site='west'"):
        Site(at_work.roster, SiteKeys.generate("west"), ledger, "site0")


def changed(this, *, arrays=None, **values):
    return replace(this, arrays={**this.arrays, **(arrays or {})}, values={**this.values, **values})


BAD_ROUNDS = {
    "another roster": lambda this: replace(this, roster="00" * 32),
    "more epsilon": lambda this: changed(
        this, settings={**this.values["settings"], "epsilon": 40.0}
    ),
    "sums that are not 0": lambda this: changed(
        this, arrays={"sums/first": this.arrays["sums/first"] + 1}
    ),
    "places that are filled": lambda this: changed(
        this, stage={**this.values["stage"], "places": 5}
    ),
    "a shorter stage": lambda this: changed(
        this, stage={**this.values["stage"], "last": this.values["stage"]["last"] - 9}
    ),
    "no stage": lambda this: changed(this, stage=None),
    "another stage": lambda this: changed(this, stage={**this.values["stage"], "name": "x"}),
    "prefix mode": lambda this: changed(this, prefix=True),
    "users": lambda this: changed(this, arrays={"users/x": np.zeros(1)}),
    "a map that is no number": lambda this: changed(this, arrays={"map": np.full((D, 2), np.nan)}),
    "bounds that are none": lambda this: changed(
        this, bounds={**this.values["bounds"], "pair": -1.0}
    ),
    "settings that are none": lambda this: changed(this, settings={}),
    "a map before its time": lambda this: changed(this, arrays={"map": np.ones((D, 2))}),
    "a power method": lambda this: changed(this, arrays={"power/x": np.zeros(1)}),
    "an array that nothing asks for": lambda this: changed(this, arrays={"x": np.zeros(1)}),
    "a snapshot without its topics": lambda this: changed(this, snapshot={"number": 1}),
}


@pytest.mark.parametrize("kind", BAD_ROUNDS)
def test_rounds_that_an_aggregator_made_up_are_refused(at_work, kind):
    bad = BAD_ROUNDS[kind](Round.first(at_work.roster))
    with pytest.raises(InvalidSettingError, match=r"a round must be(gin|long)"):
        at_work.sites["site0"].make_share(bad, [at_work.documents["site0"]])
    assert spent(at_work)["site0"] == 0


@pytest.fixture(scope="module")
def refining(tmp_path_factory):
    """Sites before a round of refinement, which speaks of topics and frequencies."""
    keys = keys_of(2)
    asked = settings_of(documents_per_snapshot=2000, refinement_rounds=1)
    with Sites(roster_of(keys, asked), keys, tmp_path_factory.mktemp("refining")) as sites:
        this = Round.first(sites.roster)
        while this.values["stage"]["name"] != "refine 1":
            this = sites.answer(this).next_round
        yield sites, this


@pytest.mark.parametrize("name", [*POSITIVE, *NOT_NEGATIVE])
def test_frequencies_that_an_aggregator_made_up_are_refused(refining, name):
    sites, this = refining
    made_up = this.arrays[name].copy()
    made_up.reshape(-1)[0] = -1e-9
    before = spent(sites)
    with pytest.raises(InvalidSettingError, match="a probability is negative"):
        sites.share("site0", changed(this, arrays={name: made_up}))
    assert spent(sites) == before


BAD_REFINEMENTS = {
    "refinement/components": lambda a: np.where(np.arange(a.size).reshape(a.shape) == 3, 1e39, a),
    "refinement/shares": lambda a: a[:-1],
    "refinement/sums": lambda a: a.astype(np.float32),
    "refinement/done": lambda a: a + 1,
    "refinement/found/background": lambda a: a + 1,
    "refinement/found/spectral/alpha_0": lambda a: a * 0 + 1e30,
    "refinement/found/spectral/pair_noise": lambda a: np.zeros((9, 9)),
    "map": lambda a: a[:-1],
}


@pytest.mark.parametrize("name", BAD_REFINEMENTS)
def test_refinements_that_an_aggregator_made_up_are_refused(refining, name):
    """The attack: shares that are too few are read past their end, and NaN shows who has a word."""
    sites, this = refining
    before = spent(sites)
    with pytest.raises(InvalidSettingError, match="a round must begin"):
        sites.share("site0", changed(this, arrays={name: BAD_REFINEMENTS[name](this.arrays[name])}))
    assert spent(sites) == before


def without(this, prefix):
    arrays = {name: a for name, a in this.arrays.items() if not name.startswith(prefix)}
    return replace(this, arrays=arrays)


@pytest.mark.parametrize("prefix", ["refinement/", "refinement/shares", "refinement/found/", "map"])
def test_a_refinement_without_its_state_is_refused(refining, prefix):
    sites, this = refining
    with pytest.raises(InvalidSettingError, match="a round must begin"):
        without(this, prefix).open(sites.roster)
    assert this.open(sites.roster)[1].name == "refine 1"


def test_a_numbered_stage_is_decided_by_its_name(refining):
    """The attack: "refine 1" with the state of a power method, whose sums have other bounds."""
    sites, this = refining
    engine, _ = this.open(sites.roster)
    engine.window.refinement, engine.window.power = None, object()
    with pytest.raises(InvalidSettingError, match="a numbered stage must come with"):
        engine.window.statistics("refine 1")
    engine, _ = this.open(sites.roster)
    for stage in ("refine 2", "power 1"):
        with pytest.raises(InvalidSettingError, match="a numbered stage must come with"):
            engine.window.statistics(stage)


BAD_MAPS = {
    "few rows": ("map", lambda a: a[:-1]),
    "single precision": ("map", lambda a: a.astype(np.float32)),
    "whole numbers": ("map", lambda a: np.full(a.shape, 16, dtype=np.uint8)),
    "many columns": ("map", lambda a: np.hstack([a, a])),
    "no columns": ("map", lambda a: a[:, :0]),
    "endless": ("map", lambda a: np.full(a.shape, np.inf)),
    "too long": ("map", lambda a: np.full(a.shape, 1e40)),
    "frequencies above 1": ("view/first", lambda a: a + 1),
    "fewer frequencies": ("view/first", lambda a: a[1:]),
    "fewer pairs": ("view/pairs", lambda a: a[1:]),
    "one number": ("view/spectrum", lambda a: a[0]),
}


@pytest.mark.parametrize("kind", BAD_MAPS)
def test_maps_that_an_aggregator_made_up_are_refused(at_work, kind):
    this = at_work.answer(Round.first(at_work.roster)).next_round
    assert this.values["stage"]["name"] == "triples"
    this.open(at_work.roster)
    name, change = BAD_MAPS[kind]
    before = spent(at_work)
    with pytest.raises(InvalidSettingError, match="a round must begin"):
        at_work.share("site0", changed(this, arrays={name: np.asarray(change(this.arrays[name]))}))
    assert spent(at_work) == before


def test_refinement_rounds_are_rounds_like_others(refining):
    sites, this = refining
    found = sites.answer(this)
    assert found.model is not None
    assert set(found.released) == {"shares"}
    # The statement names every bound that was clipped by.
    assert found.model.privacy["clip_bounds"]["shares"] == {"l2_clip_norm": 1.0, "source": "fixed"}


def test_sites_that_were_given_different_rounds_do_not_add_up(at_work):
    """A bound that somebody chose for one site only: its mask cancels with nobody's."""
    this = at_work.answer(Round.first(at_work.roster)).next_round
    assert this is not None
    bounds = this.values["bounds"]
    other = changed(this, bounds={**bounds, "triple": bounds["triple"] / 2})
    shares = [at_work.share("site0", other), *(at_work.share(f"site{i}", this) for i in (1, 2))]
    with pytest.raises(InvalidSettingError, match="got site='site0' round_digest="):
        aggregate(at_work.roster, this, shares)
    for name in ("triple", "triple_pair"):
        total = added(share.arrays[name] for share in shares)
        assert np.abs(total.astype(float)).max() > 2.0**60


def test_share_files_are_read_as_written_and_damage_is_found(at_work, tmp_path):
    this = Round.first(at_work.roster)
    share = at_work.share("site0", this)
    share.save(tmp_path / "share")
    found = Share.load(tmp_path / "share")
    assert found.content == share.content
    assert found.signature == share.signature
    data = bytearray((tmp_path / "share").read_bytes())
    data[-3] ^= 1
    (tmp_path / "share").write_bytes(bytes(data))
    with pytest.raises(ModelFileError, match="whole and unaltered"):
        Share.load(tmp_path / "share")


@pytest.mark.parametrize(
    "change", [{"site": "a/b"}, {"arrays": {"first": np.zeros(3)}}, {"signature": 7}]
)
def test_files_that_hold_no_share_are_refused(at_work, tmp_path, change):
    share = replace(at_work.share("site0", Round.first(at_work.roster)), **change)
    share.save(tmp_path / "share")
    with pytest.raises(ModelFileError, match="a share file must be whole"):
        Share.load(tmp_path / "share")


def test_round_files_are_read_as_written_and_damage_is_found(at_work, tmp_path):
    this = at_work.answer(Round.first(at_work.roster)).next_round
    assert this is not None
    this.save(tmp_path / "round")
    assert Round.load(tmp_path / "round").digest == this.digest
    replace(this, number=0).save(tmp_path / "round")
    with pytest.raises(ModelFileError, match="a round file must be whole"):
        Round.load(tmp_path / "round")
    at_work.share("site0", this).save(tmp_path / "share")
    with pytest.raises(ModelFileError, match="of the kind that is asked for"):
        Round.load(tmp_path / "share")
