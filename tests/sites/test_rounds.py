"""Rounds that an aggregator made up are refused before a document is read, and nothing is spent."""

from dataclasses import replace

import numpy as np
import pytest

from streamlda.errors import InvalidSettingError
from streamlda.sites.aggregate import aggregate
from tests.sites.protocol import D, Sites, added, spent


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Sites of one config, and its rounds by the stage that they begin."""
    folder, changes = tmp_path_factory.mktemp("sites"), {"documents_per_snapshot": 2000}
    with Sites.of(2, folder, refinement_rounds=1, **changes) as sites:
        this, rounds = sites.first, {}
        for stage in ("pairs", "triples", "refine 1"):
            assert this.values["stage"]["name"] == stage
            rounds[stage] = this
            this = this if stage == "refine 1" else sites.answer(this).next_round
        yield sites, rounds


def changed(this, *, arrays=None, **values):
    return replace(this, arrays={**this.arrays, **(arrays or {})}, values={**this.values, **values})


def without(this, prefix):
    arrays = {name: a for name, a in this.arrays.items() if not name.startswith(prefix)}
    return replace(this, arrays=arrays)


def other_stage(this, **values):
    return changed(this, stage={**this.values["stage"], **values})


def other_array(name, change):
    return lambda this: changed(this, arrays={name: np.asarray(change(this.arrays[name]))})


def negative(array):
    made_up = array.copy()
    made_up.reshape(-1)[0] = -1e-9
    return made_up


#: Of the first round.
BAD_ROUNDS = {
    "another config": lambda this: replace(this, config="00" * 32),
    "more epsilon": lambda this: changed(
        this, settings={**this.values["settings"], "epsilon": 40.0}
    ),
    "sums that are not 0": other_array("sums/first", lambda a: a + 1),
    "places that are filled": lambda this: other_stage(this, places=5),
    "a shorter stage": lambda this: other_stage(this, last=this.values["stage"]["last"] - 9),
    "no stage": lambda this: changed(this, stage=None),
    "another stage": lambda this: other_stage(this, name="x"),
    "prefix mode": lambda this: changed(this, prefix=True),
    "users": lambda this: changed(this, arrays={"users/x": np.zeros(1)}),
    "NaN": lambda this: changed(this, arrays={"map": np.full((D, 2), np.nan)}),
    "a negative bound": lambda this: changed(this, bounds={**this.values["bounds"], "pair": -1.0}),
    "no settings": lambda this: changed(this, settings={}),
    "a projection before its time": lambda this: changed(this, arrays={"map": np.ones((D, 2))}),
    "a power method": lambda this: changed(this, arrays={"power/x": np.zeros(1)}),
    "an unknown array": lambda this: changed(this, arrays={"x": np.zeros(1)}),
    "a snapshot without its topics": lambda this: changed(this, snapshot={"number": 1}),
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


def test_a_numbered_stage_is_decided_by_its_name(begun):
    """The attack: "refine 1" with the state of a power method, whose sums have other bounds."""
    sites, rounds = begun
    this = rounds["refine 1"]
    engine, _ = this.open(sites.config)
    engine.window.refinement, engine.window.power = None, object()
    with pytest.raises(InvalidSettingError, match="a numbered stage must come with"):
        engine.window.statistics("refine 1")


def test_refinement_rounds_are_rounds_like_others(begun):
    sites, rounds = begun
    found = sites.answer(rounds["refine 1"])
    assert found.model is not None
    assert set(found.released) == {"shares"}
    # The statement names every bound that was clipped by.
    assert found.model.privacy["clip_bounds"]["shares"] == {"l2_clip_norm": 1.0, "source": "fixed"}


def test_sites_that_were_given_different_rounds_do_not_add_up(tmp_path):
    """A bound that somebody chose for one site only: its mask cancels with nobody's."""
    with Sites.of(3, tmp_path) as sites:
        this = sites.answer(sites.first).next_round
        bounds = this.values["bounds"]
        other = changed(this, bounds={**bounds, "triple": bounds["triple"] / 2})
        shares = [sites.share("site0", other), *(sites.share(f"site{i}", this) for i in (1, 2))]
        with pytest.raises(InvalidSettingError, match=r"its round_digest is another"):
            aggregate(sites.config, this, shares)
    for name in ("triple", "triple_pair"):
        total = added(share.arrays[name] for share in shares)
        assert np.abs(total.astype(float)).max() > 2.0**60
