"""Rounds that an aggregator made up are refused before a document is read, and nothing is spent."""

from dataclasses import replace

import numpy as np
import pytest

from streamlda.errors import InvalidSettingError, ModelFileError
from streamlda.private.contributions import TripleStatistic
from streamlda.sites.aggregate import aggregate
from streamlda.sites.keys import ROUND, RoundKey, SiteKey
from streamlda.sites.rounds import Round
from tests.sites.protocol import HUB, D, Sites, added, spent


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Sites of one config, and its rounds by the stage that they begin."""
    folder = tmp_path_factory.mktemp("sites")
    changes = {"documents_per_snapshot": 2000, "refinement_rounds": 1, "snapshots": 1}
    with Sites.of(2, folder, **changes) as sites:
        this, rounds = sites.first, {}
        for stage in ("pairs", "triples", "refine 1"):
            assert this.stage == stage
            rounds[stage] = this
            this = this if stage == "refine 1" else sites.answer(this).next_round
        yield sites, rounds


def changed(this, arrays=None, bounds=None, **values):
    """Return the round with some of it changed, as an aggregator that cheats would sign it."""
    arrays = {**this.arrays, **(arrays or {})}
    bounds = replace(this.bounds, **(bounds or {}))
    return replace(this, arrays=arrays, bounds=bounds, **values).sign(HUB)


def without(this, prefix):
    arrays = {name: a for name, a in this.arrays.items() if not name.startswith(prefix)}
    return replace(this, arrays=arrays).sign(HUB)


def of_key(change):
    """Return the change of a round in which one site is announced otherwise."""
    return lambda this: changed(this, keys=(change(this.keys[0]), *this.keys[1:]))


def other_array(name, change):
    return lambda this: changed(this, arrays={name: np.asarray(change(this.arrays[name]))})


def negative(array):
    made_up = array.copy()
    made_up.reshape(-1)[0] = -1e-9
    return made_up


#: Of the first round.
BAD_ROUNDS = {
    "another config": lambda this: changed(this, config="00" * 32),
    "sums": lambda this: changed(this, arrays={"sums/first": np.zeros(D)}),
    "no stage": lambda this: changed(this, stage=""),
    "another stage": lambda this: changed(this, stage="x"),
    "a stage that comes later": lambda this: changed(this, stage="triples"),
    "users": lambda this: changed(this, arrays={"users/x": np.zeros(1)}),
    "NaN": lambda this: changed(this, arrays={"map": np.full((D, 2), np.nan)}),
    "another bound": lambda this: changed(this, bounds={"pair": 0.5}),
    "bounds from documents": lambda this: changed(this, bounds={"source": "private-quantile"}),
    "a projection before its time": lambda this: changed(this, arrays={"map": np.ones((D, 2))}),
    "a power method": lambda this: changed(this, arrays={"power/x": np.zeros(1)}),
    "an unknown array": lambda this: changed(this, arrays={"x": np.zeros(1)}),
    "a snapshot": lambda this: changed(this, arrays={"snapshot/alpha": np.ones(2)}),
    # The attack: rounds without end where the config has one window.
    "a second window": lambda this: changed(this, window=2),
    "a later round": lambda this: changed(this, number=2),
    "a round far away": lambda this: changed(this, number=999),
    "no window": lambda this: changed(this, window=0),
    "a window that is none": lambda this: changed(this, window=-5),
    "a site left out": lambda this: changed(this, keys=this.keys[1:]),
    "a site twice": lambda this: changed(this, keys=(this.keys[0], *this.keys)),
    "a round key of another": of_key(
        lambda own: replace(own, exchange=RoundKey("x", RoundKey.random()).exchange)
    ),
    "a site that is no member": of_key(lambda own: replace(own, site="west")),
    "a key of another round": of_key(lambda own: replace(own, round=2)),
}
BAD_PROJECTIONS = {
    "few rows": other_array("map", lambda a: a[:-1]),
    "single precision": other_array("map", lambda a: a.astype(np.float32)),
    "integers": other_array("map", lambda a: np.full(a.shape, 16, dtype=np.uint8)),
    "many columns": other_array("map", lambda a: np.hstack([a, a])),
    "no columns": other_array("map", lambda a: a[:, :0]),
    "endless": other_array("map", lambda a: np.full(a.shape, np.inf)),
    "too long": other_array("map", lambda a: np.full(a.shape, 1e40)),
    "frequencies above 1": other_array("view/first", lambda a: a + 1),
    "fewer frequencies": other_array("view/first", lambda a: a[1:]),
    "fewer pairs": other_array("view/pairs", lambda a: a[1:]),
    "one number": other_array("view/spectrum", lambda a: a[0]),
    "a bound that is not that of the projection": lambda this: changed(
        this, bounds={"triple": this.bounds.triple / 2}
    ),
    "the round before": lambda this: changed(this, number=1),
}
#: The attack: responsibilities that are too few are read past their end, and NaN shows who has a
#: word.
BAD_REFINEMENTS = {
    "a huge topic": other_array(
        "refinement/components",
        lambda a: np.where(np.arange(a.size).reshape(a.shape) == 3, 1e39, a),
    ),
    "few responsibilities": other_array("refinement/shares", lambda a: a[:-1]),
    "single sums": other_array("refinement/sums", lambda a: a.astype(np.float32)),
    "a later round": other_array("refinement/done", lambda a: a + 1),
    "a background above 1": other_array("refinement/found/background", lambda a: a + 1),
    "a huge alpha_0": other_array("refinement/found/spectral/alpha_0", lambda a: a * 0 + 1e30),
    "noise of other shape": other_array(
        "refinement/found/spectral/pair_noise", lambda a: np.zeros((9, 9))
    ),
    "frequencies of moments above 1": other_array("refinement/moments/background", lambda a: a + 1),
    "more topics of moments": other_array("refinement/moments/alpha", lambda a: np.tile(a, 9)),
    "an endless length": other_array("refinement/long", lambda a: a * 0 + 1e30),
    "no topics of moments": lambda this: without(this, "refinement/moments/"),
    "no refinement": lambda this: without(this, "refinement/"),
    "no responsibilities": lambda this: without(this, "refinement/shares"),
    "no topics": lambda this: without(this, "refinement/found/"),
    "no projection": lambda this: without(this, "map"),
    **{
        f"a negative {name}": other_array(f"refinement/{name}", negative)
        for name in (
            *("shares", "found/spectral/alpha_0", "components", "found/background"),
            *("moments/alpha", "moments/components", "long"),
        )
    },
}
BAD = {"pairs": BAD_ROUNDS, "triples": BAD_PROJECTIONS, "refine 1": BAD_REFINEMENTS}
CASES = [
    pytest.param(stage, change, id=f"{stage}-{kind}")
    for stage, table in BAD.items()
    for kind, change in table.items()
]


@pytest.mark.parametrize(("stage", "change"), CASES)
def test_a_made_up_round_is_refused(begun, stage, change):
    sites, rounds = begun
    this, before = rounds[stage], spent(sites)
    assert this.open(sites.config)[1].name == stage
    with pytest.raises(InvalidSettingError, match=r"a round must be(gin|long)"):
        sites.share("site0", change(this))
    assert spent(sites) == before


def test_rounds_are_answered_as_the_aggregator_has_signed_them(begun):
    """The attack: rounds of strangers, with which they use up a site's documents."""
    sites, rounds = begun
    before, stranger = spent(sites), SiteKey.generate("hub")
    for this in rounds.values():
        for wrong in (
            replace(this, signature=""),
            replace(this, signature="00" * 64),
            replace(this, attempt=2),
            this.sign(stranger),
            # A member is no aggregator.
            this.sign(sites.keys[0]),
            replace(this, signature=HUB.sign(b"", bytes.fromhex(this.digest))),
        ):
            with pytest.raises(ModelFileError, match="as the aggregator has signed it"):
                sites.share("site0", wrong)
    assert HUB.sign(ROUND, bytes.fromhex(rounds["pairs"].digest)) == rounds["pairs"].signature
    assert spent(sites) == before


def test_a_config_ends_after_its_windows_whatever_a_round_says(begun):
    sites, rounds = begun
    last = rounds["refine 1"]
    share = sites.share("site1", last)
    assert share.following is None
    found = sites.answer(last)
    assert found.next_round is None
    assert set(found.released) == {"shares"}
    # The statement names every bound that was clipped by.
    assert found.model.privacy["clip_bounds"]["shares"] == {"l2_clip_norm": 1.0, "source": "fixed"}
    more = {"number": 4, "stage": "pairs", "arrays": {}}
    for window in (1, 2):
        crafted = Round.first(sites.config, rounds["pairs"].keys)
        keys = tuple(sites.announce(name, sites.config, 4, 1) for name in sites.sites)
        crafted = replace(crafted, **more, window=window, keys=keys).sign(HUB)
        with pytest.raises(InvalidSettingError, match="must lie in"):
            crafted.open(sites.config)


@pytest.mark.parametrize(("number", "attempt"), [(4, 1), (1, 2), (4, 2)])
def test_a_round_key_of_another_round_is_refused(begun, number, attempt):
    """The attack: a site's own announcement, of a round for which its key is still there."""
    sites, rounds = begun
    own = sites.announce("site0", sites.config, number, attempt)
    crafted = changed(rounds["pairs"], keys=(own, rounds["pairs"].keys[1]))
    with pytest.raises(InvalidSettingError, match="an announcement must be of this round"):
        sites.share("site0", crafted)


def test_what_follows_from_the_number_of_a_round_is_computed(begun):
    sites, rounds = begun
    slots = {name: (first, last) for name, first, last in sites.config.run_settings.stage_slots()}
    for name, this in rounds.items():
        engine, stage = this.open(sites.config)
        assert (stage.first, stage.last) == slots[name]
        assert [(r.name, r.first, r.last + 1) for r in engine.window.records] == [
            (done, *slots[done]) for done in list(slots)[: list(slots).index(name)]
        ]
        assert not any(map(np.any, stage.sums.aggregates.values()))
    this = rounds["triples"]
    largest = TripleStatistic(this.arrays["map"]).largest_norm
    assert this.bounds.triple == pytest.approx(largest, rel=1e-12)


def test_windows_that_were_lost_count(tmp_path):
    """Else an aggregator that says so could have models without end."""
    with Sites.of(2, tmp_path, snapshots=2, n_features=10) as sites:
        this = sites.first
        keys = [sites.announce(name, sites.config, 2, 1) for name in sites.sites]
        for number, window, stage, allowed in (
            *((2, 1, "triples", True), (2, 2, "pairs", True), (2, 2, "triples", False)),
            *((2, 1, "pairs", False), (2, 3, "pairs", False)),
        ):
            assert sorted(sites.config.run_settings.stages) == ["pairs", "triples"]
            crafted = replace(this, number=number, window=window, stage=stage, keys=tuple(keys))
            # A round of the triples would need its arrays: of what it says, that is refused last.
            message = "has other arrays" if stage == "triples" and allowed else "must lie in"
            if allowed and stage == "pairs":
                engine, begun = crafted.sign(HUB).open(sites.config)
                assert begun.first == 600
                assert engine.slots == 600
                continue
            with pytest.raises(InvalidSettingError, match=message):
                crafted.sign(HUB).open(sites.config)


def test_a_numbered_stage_is_decided_by_its_name(begun):
    """The attack: "refine 1" with the state of a power method, whose sums have other bounds."""
    sites, rounds = begun
    this = rounds["refine 1"]
    engine, _ = this.open(sites.config)
    engine.window.refinement, engine.window.power = None, object()
    with pytest.raises(InvalidSettingError, match="a numbered stage must come with"):
        engine.window.statistics("refine 1")


def test_sites_that_were_given_different_rounds_do_not_add_up(tmp_path):
    """A projection that somebody chose for one site only: its mask cancels with nobody's."""
    with Sites.of(3, tmp_path) as sites:
        this = sites.answer(sites.first).next_round
        other = changed(this, arrays={"map": -this.arrays["map"]})
        shares = [sites.share("site0", other), *(sites.share(f"site{i}", this) for i in (1, 2))]
        with pytest.raises(InvalidSettingError, match=r"its round_digest is another"):
            aggregate(sites.config, this, shares)
    for name in ("triple", "triple_pair"):
        total = added(share.arrays[name] for share in shares)
        # Sums alone have 36 bits, what is masked 63: missed once in 2**69, of one topic in 2**23.
        assert np.abs(total.astype(float)).max() > 2.0**40
