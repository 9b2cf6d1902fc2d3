"""Rounds that an aggregator made up are refused before a document is read, and nothing is spent."""

from dataclasses import replace

import numpy as np
import pytest

from streamlda.errors import InvalidSettingError, ModelFileError
from streamlda.sites.aggregate import aggregate
from streamlda.sites.keys import RoundKey, SiteKey
from streamlda.sites.rounds import Round
from tests.sites.protocol import HUB, D, Sites, add_up, releases, sign


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """Sites of one config, and its rounds by the stage that they begin."""
    folder = tmp_path_factory.mktemp("sites")
    changes = {"documents_per_snapshot": 2000, "refinement_rounds": 1, "snapshots": 1}
    with Sites.of(2, folder, **changes) as sites:
        this, rounds = sites.first, {}
        for stage in ("common words", "common pairs", "refine", "choice"):
            assert this.stage == stage
            rounds[stage] = this
            this = this if stage == "choice" else sites.answer(this).next_round
        yield sites, rounds


def change_round(this, arrays=None, **values):
    """Return the round with some of it changed, as an aggregator that cheats would sign it."""
    return replace(this, arrays={**this.arrays, **(arrays or {})}, **values).sign(HUB)


def without(this, prefix):
    arrays = {name: a for name, a in this.arrays.items() if not name.startswith(prefix)}
    return replace(this, arrays=arrays).sign(HUB)


def change_key(change):
    return lambda this: change_round(this, keys=(change(this.keys[0]), *this.keys[1:]))


def other_array(name, change):
    return lambda this: change_round(this, arrays={name: np.asarray(change(this.arrays[name]))})


BAD_ROUNDS = {
    "another config": lambda this: change_round(this, config="00" * 32),
    "sums": lambda this: change_round(this, arrays={"sums/first": np.zeros(D)}),
    "no stage": lambda this: change_round(this, stage=""),
    "a stage that comes later": lambda this: change_round(this, stage="choice"),
    "a release before its time": lambda this: change_round(
        this, arrays={"common words/first": np.ones(D)}
    ),
    # The attack: rounds without end where the config has one window.
    "a second window": lambda this: change_round(this, window=2),
    "a later round": lambda this: change_round(this, number=2),
    "no window": lambda this: change_round(this, window=0),
    "a site left out": lambda this: change_round(this, keys=this.keys[1:]),
    "a site twice": lambda this: change_round(this, keys=(this.keys[0], *this.keys)),
    "a round key of another": change_key(
        lambda own: replace(own, exchange=RoundKey("x", RoundKey.random()).exchange)
    ),
    "a site that is no member": change_key(lambda own: replace(own, site="west")),
    "a key of another round": change_key(lambda own: replace(own, round=2)),
}
WORDS, PAIRS = "common words/first", "common pairs/pair"
BAD_RELEASES = {
    "few words": other_array(WORDS, lambda a: a[:-1]),
    "single precision": other_array(WORDS, lambda a: a.astype(np.float32)),
    "NaN": other_array(WORDS, lambda a: a * np.nan),
    "endless": other_array(WORDS, lambda a: a + np.inf),
    "more than all documents": other_array(WORDS, lambda a: a * 1e4),
    "less than no document": other_array(WORDS, lambda a: -np.abs(a)),
    "no release": lambda this: without(this, "common words/"),
    "a block less": lambda this: without(this, "common words/first_kept"),
    "the round before": lambda this: change_round(this, number=1),
}
BAD_PAIRS = {
    "few pairs": other_array(PAIRS, lambda a: a[:-1]),
    "other words": other_array(WORDS, lambda a: a * 1e9),
    "no words": lambda this: without(this, "common words/"),
    "no pairs": lambda this: without(this, "common pairs/"),
    "its own release": lambda this: change_round(this, arrays={"refine/shares": np.ones((D, 3))}),
}
BAD = {"common words": BAD_ROUNDS, "common pairs": BAD_RELEASES, "refine": BAD_PAIRS}
CASES = [
    pytest.param(stage, change, id=f"{stage}-{kind}")
    for stage, table in BAD.items()
    for kind, change in table.items()
]


@pytest.mark.parametrize(("stage", "change"), CASES)
def test_a_made_up_round_is_refused(begun, stage, change):
    sites, rounds = begun
    this, before = rounds[stage], releases(sites)
    assert this.open(sites.config)[1].name == stage
    with pytest.raises(InvalidSettingError, match=r"a round (begins no|is of another)"):
        sites.share("site0", change(this))
    assert releases(sites) == before


def test_rounds_are_answered_as_the_aggregator_has_signed_them(begun):
    """The attack: rounds of strangers, with which they use up a site's documents."""
    sites, rounds = begun
    before, stranger = releases(sites), SiteKey.generate("hub")
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
    this = rounds["common words"]
    assert this.sign(HUB).signature == this.signature
    assert releases(sites) == before


def test_a_config_ends_after_its_windows_whatever_a_round_says(begun):
    sites, rounds = begun
    last = rounds["choice"]
    share = sites.share("site1", last)
    assert share.following is None
    found = sites.answer(last)
    assert found.next_round is None
    assert set(found.released) == {"preferred", "tokens"}
    # The statement names every bound that was clipped by, and one site's seed makes all public.
    assert found.model.privacy["clip_bounds"]["shares"] == {"l2_clip_norm": 1.0, "source": "fixed"}
    mixed = [sign(sites, sites.share("site0", last), secure=False), share]
    said = aggregate(sites.config, last, mixed).model.privacy
    assert said == {"statement": "not private (seeded)"}
    more = {"number": 5, "stage": "common words", "arrays": {}}
    for window in (1, 2):
        crafted = Round.first(sites.config, rounds["common words"].keys)
        keys = tuple(sites.announce(name, sites.config, 5, 1) for name in sites.sites)
        crafted = replace(crafted, **more, window=window, keys=keys).sign(HUB)
        with pytest.raises(InvalidSettingError, match="must lie in"):
            crafted.open(sites.config)


@pytest.mark.parametrize(("number", "attempt"), [(5, 1), (1, 2), (5, 2)])
def test_a_round_key_of_another_round_is_refused(begun, number, attempt):
    """The attack: the sites' own announcements, of a round for which keys are still there."""
    sites, rounds = begun
    keys = tuple(sites.announce(name, sites.config, number, attempt) for name in sites.sites)
    crafted = change_round(rounds["common words"], keys=keys)
    with pytest.raises(InvalidSettingError, match="an announcement is of another round"):
        sites.share("site0", crafted)


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
                learner, begun = crafted.sign(HUB).open(sites.config)
                assert begun.first == 600
                assert learner.slots == 600
                continue
            with pytest.raises(InvalidSettingError, match=message):
                crafted.sign(HUB).open(sites.config)


def test_sites_that_were_given_different_rounds_do_not_add_up(tmp_path):
    """A projection that somebody chose for one site only: its mask cancels with nobody's."""
    with Sites.of(3, tmp_path) as sites:
        this = sites.answer(sites.first).next_round
        other = change_round(this, arrays={"pairs/first": this.arrays["pairs/first"][::-1].copy()})
        shares = [sites.share("site0", other), *(sites.share(f"site{i}", this) for i in (1, 2))]
        with pytest.raises(InvalidSettingError, match=r"got differs='round_digest'"):
            aggregate(sites.config, this, shares)
    for name in ("triple", "triple_pair"):
        total = add_up(share.arrays[name] for share in shares)
        # Sums alone have 36 bits, what is masked 63: missed once in 2**69, of one topic in 2**23.
        assert np.abs(total.astype(float)).max() > 2.0**40
