"""Kinds of models by one protocol: what a row moves, what is learned, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest

from streamlda.container import write_arrays
from streamlda.errors import InvalidDocumentsError, InvalidSettingError, ModelFileError
from streamlda.papers.imtiaz_sarwate.gaussian_mixture import MixtureSite, learn_mixture
from streamlda.papers.imtiaz_sarwate.metrics import captured_energy, component_error
from streamlda.papers.imtiaz_sarwate.pca import principal_subspace
from streamlda.papers.imtiaz_sarwate.promise import Promise
from streamlda.papers.imtiaz_sarwate.simulated import SimulatedSites
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.noise import SeededNoise
from streamlda.private.mixture import JOINT_RATIO, PARTS
from streamlda.private.rows import Rows
from streamlda.private.vector_moments import clipped, second_sum
from streamlda.sites.aggregate import aggregate
from streamlda.sites.agreement import described
from streamlda.sites.estimate import ESTIMATE_FORMAT, ESTIMATE_VERSION, Estimate, read
from streamlda.sites.federation import FederationConfig, Member
from streamlda.sites.keys import SiteKey
from streamlda.sites.kinds.table import KINDS, SINGLE_TOPIC
from streamlda.sites.kinds.topics import SINGLE
from tests.sites import protocol
from tests.sites.protocol import D, added, config_of, keys_of, moved, signed, words_of
from tests.sites.rows import parts, planted_mixture, planted_subspace, settings_of, sites_of

ROWS = ("pca", "mixture")

#: The angle at which two rows differ most, by kind.
FARTHEST = {
    "pca": math.pi / 2,
    "mixture": math.acos(
        (math.sqrt(PARTS[1] ** 2 - 3 * PARTS[0] * PARTS[2]) - PARTS[1]) / (3 * PARTS[2])
    ),
}


def stage_of(kind, n=1, **changes):
    return KINDS[kind].begin(settings_of(kind, documents_per_snapshot=100, **changes)).stage


def seen(kind, *rows, **changes):
    """Return the sums of rows in weighted coordinates, where one has norm at most 1."""
    stage = stage_of(kind, **changes)
    stage.add(Rows(np.array(rows)), np.ones(len(rows), dtype=bool))
    sums = stage.mechanism.from_grid(stage.state())
    weights = stage.mechanism.fractions
    return np.concatenate(
        [
            math.sqrt(weights[block.name]) * sums[block.name] / block.l2_clip_norm
            for block in stage.mechanism.blocks
        ]
    )


# What a row moves.


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_no_row_moves_the_sums_farther_than_is_said_and_some_do_so_far(kind, relation):
    stage = stage_of(kind, neighboring_relation=relation)
    most = stage.mechanism.l2_sensitivity
    rng, radius = np.random.default_rng(0), 2.5
    of = {"radius": radius, "neighboring_relation": relation}
    for _ in range(10):
        one, other = rng.standard_normal((2, 8)) * rng.choice([0.1, 1, 1e3, 1e200], (2, 1))
        gone = seen(kind, other, **of) if relation == "replace-one" else 0.0
        assert np.linalg.norm(seen(kind, one, **of) - gone) <= most
    angle = FARTHEST[kind]
    one, other = np.eye(8)[0], np.array([math.cos(angle), math.sin(angle), *[0.0] * 6])
    gone = seen(kind, 7 * other, **of) if relation == "replace-one" else 0.0
    attained = np.linalg.norm(seen(kind, 7 * one, **of) - gone)
    assert most * (1 - 0.01) < attained <= most
    wanted = {"pca": math.sqrt(2), "mixture": JOINT_RATIO}[kind]
    assert attained == pytest.approx(wanted if relation == "replace-one" else 1.0, rel=1e-4)


@pytest.mark.parametrize("kind", ROWS)
def test_a_row_that_is_none_has_a_slot_and_adds_nothing(kind):
    row = np.full(8, 0.1)
    wrong = [np.full(8, np.nan), np.array([np.inf, *row[1:]])]
    assert np.array_equal(seen(kind, row, *wrong), seen(kind, row))
    with pytest.raises(InvalidDocumentsError, match=r"numbers that were agreed on, got shape"):
        KINDS[kind].begin(settings_of(kind)).add(Rows(np.zeros((2, 7))))


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("1,2.5,-3", [1, 2.5, -3]),
        (" 1; 2 ;3 ", [1, 2, 3]),
        ("1\t2 3e1\n", [1, 2, 30]),
        ("a,b,c", None),
        ("1,2", None),
        ("1,2,3,4", None),
        ("1,,3", None),
        ("nan,1,2", None),
        ("", None),
        (None, None),
    ],
)
def test_lines_are_rows(line, row):
    found = Rows.parsed([line], 3)
    assert found.usable.tolist() == [row is not None]
    assert row is None or found.values[0].tolist() == row


@pytest.mark.parametrize("kind", ROWS)
def test_sums_do_not_depend_on_how_rows_were_cut(kind):
    rows, found = np.random.default_rng(0).standard_normal((100, 8)), []
    for cuts in ([], [1, 50, 51], list(range(1, 100))):
        stage = stage_of(kind)
        for part in np.split(rows, cuts):
            stage.add(Rows(part), np.ones(len(part), dtype=bool))
        found.append(stage.state())
    for name in found[0]:
        assert all(np.array_equal(found[0][name], other[name]) for other in found)


# What is learned.


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Three sites have learned each kind under seeded noise: rows, truth, and what came of it."""
    made = {}
    for number, (kind, plant) in enumerate(
        (("pca", planted_subspace), ("mixture", planted_mixture))
    ):
        rows, truth = plant(3000)
        noise = SeededNoise(number)
        with sites_of(kind, tmp_path_factory.mktemp(kind), rows, noise) as sites:
            this = sites.first
            found = aggregate(sites.config, this, sites.shares(this))
            made[kind] = (rows, truth, found, sites.config, this)
    return made


def test_directions_keep_the_energy_that_the_simulation_keeps(learned):
    rows, moment, found, _, _ = learned["pca"]
    sums = [second_sum(clipped(part, 1.0)) for part in parts(rows)]
    simulated = []
    for seed in range(8):
        network = SimulatedSites(
            [len(part) for part in parts(rows)], Promise(2.0, 1e-5), noise=SeededNoise(seed)
        )
        subspace = principal_subspace(sums, 3, network, 1.0)
        simulated.append(captured_energy(subspace.vectors, moment))
    own = captured_energy(found.model.arrays["directions"], moment)
    best = float(np.linalg.eigvalsh(moment)[-3:].sum())
    assert min(simulated) - np.std(simulated) < own <= best
    assert own > 0.99 * best


def test_means_are_as_near_as_those_of_the_simulation(learned):
    rows, means, found, _, _ = learned["mixture"]
    sites, simulated = [MixtureSite(part, 1.0) for part in parts(rows)], []
    for seed in range(8):
        network = SimulatedSites(
            [site.documents for site in sites], Promise(2.0, 1e-5), noise=SeededNoise(seed)
        )
        estimate = learn_mixture(sites, 3, network, rng=np.random.default_rng(seed))
        simulated.append(component_error(means, estimate.components))
    own = component_error(means, found.model.arrays["means"])
    assert own < max(simulated) + np.std(simulated)
    assert own < 0.1
    assert found.model.arrays["weights"] == pytest.approx([0.5, 0.3, 0.2], abs=0.1)
    assert found.model.arrays["variance"] == pytest.approx(0.05**2, rel=0.5)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ROWS)
def test_the_noise_is_that_of_one_holder_of_all_rows(kind, tmp_path):
    """The ratio of some 800 values is off by 0.15, six deviations, in one of 5e8 tests.

    One of three sites without noise gives 0.82: missed in one of 8 tests.
    """
    d = {"pca": 40, "mixture": 15}[kind]
    blank = np.full((3000, d), np.nan)
    with sites_of(kind, tmp_path, blank, SeededNoise(5), epsilon=1.0) as sites:
        found = aggregate(sites.config, sites.first, sites.shares(sites.first))
        pooled = sites.config.settings.noise_multiplier
    values = np.concatenate([found.released[name] / found.stddevs[name] for name in found.released])
    assert len(values) > 800
    assert float(np.std(values)) == pytest.approx(1.0, abs=0.15)
    # In units of a row: z times the sensitivity, of all sites together.
    most = {"pca": math.sqrt(2), "mixture": JOINT_RATIO / math.sqrt(PARTS[1])}[kind]
    assert found.stddevs["second"] == pytest.approx(pooled * most, rel=0.01)


def test_statement_and_file_say_what_was_promised(learned, tmp_path):
    rows = learned["pca"][0]
    with sites_of("pca", tmp_path, rows) as sites:
        found = aggregate(sites.config, sites.first, sites.shares(sites.first))
    model, path = found.model, tmp_path / "model"
    assert found.next_round is None
    model.save(path)
    for back in (Estimate.load(path), read(path)):
        assert (back.kind, back.documents_seen) == ("pca", 3000)
        assert back.arrays["directions"].tobytes() == model.arrays["directions"].tobytes()
    said = back.privacy
    assert (said["epsilon"], said["delta"], said["sites"]["n_sites"]) == (2.0, 1e-5, 3)
    assert said["clip_bounds"] == {"second": {"l2_clip_norm": 1.0, "source": "fixed"}}
    assert said["vocabulary"] == "columns of a matrix: public"
    assert (said["privacy_unit"], said["excluded"][-1]) == (
        "record",
        "records of sites that collude",
    )
    assert sites.config.ledger_terms().privacy_unit == "record"
    # The radius is in the digest to its last digit.
    radius = sites_of("pca", tmp_path, rows, radius=2.0 + 2**-40).config
    assert f"of norm at most {2 + 2**-40!r}, " in "\n".join(described(radius))
    # Noise that anyone can draw again is not called private.
    assert learned["pca"][2].model.privacy["statement"] == "not private (seeded)"
    # Another estimate of the same name is kept.
    other = replace(model, privacy={**said, "delta": 2e-5})
    assert model.publish(path) is None
    assert other.publish(path) == tmp_path / "model.1"
    assert read(tmp_path / "model.1").privacy["delta"] == 1e-5
    # Of the same terms, from a second attempt.
    sums = {name: array + 1 for name, array in other.arrays.items()}
    assert other.publish(path) is None
    assert replace(other, arrays=sums).publish(path) == tmp_path / "model.2"


def test_an_estimate_of_other_arrays_is_refused(learned, tmp_path):
    model, path = learned["mixture"][2].model, tmp_path / "model"
    about = {"kind": "mixture", "settings": dict(model.settings), "privacy": model.privacy}
    about |= {"documents_seen": 3000, "created": model.created}
    wrong = {**model.arrays, "means": model.arrays["means"][:2]}
    write_arrays(path, ESTIMATE_FORMAT, ESTIMATE_VERSION, wrong, about)
    with pytest.raises(ModelFileError, match="a file of an estimate must be whole"):
        read(path)
    path.write_bytes(b"no model")
    with pytest.raises(ModelFileError, match=r"whole and unaltered|streamlda wrote"):
        read(path)


# What is refused.


def test_a_config_of_topics_is_the_one_of_before():
    """What sites have signed holds: kinds changed nothing for topics."""
    keys = [SiteKey(f"site{i}", bytes([i + 1]) * 32) for i in range(3)]
    members = tuple(Member(k.public, w) for k, w in zip(keys, [0.2, 0.3, 0.5], strict=True))
    agreed = protocol.settings_of(), words_of(D)
    config = FederationConfig("test", members, keys[0].public, *agreed)
    assert config.digest == "0d81ce32f7c42814fabc793f6df4697777b7f05258d4412e74e82dc5a38909cb"
    single = KINDS[SINGLE_TOPIC].settings(agreed[0].values() | SINGLE)
    other = replace(config, settings=single, kind=SINGLE_TOPIC)
    assert len({c.settings_digest for c in (config, replace(config, settings=single), other)}) == 3


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("pca", {"n_components": 9}, "n_components must lie in"),
        ("mixture", {"n_components": 8}, "n_components must lie in"),
        ("pca", {"n_features": 4000, "n_components": 2}, "n_features must lie in"),
        ("mixture", {"n_features": 129}, "n_features must lie in"),
        ("pca", {"radius": 0.0}, "radius must lie in"),
        ("pca", {"n_components": 2.5}, "n_components must be a whole number"),
        ("mixture", {"seed": 1.5}, "seed must be a whole number"),
        ("pca", {"documents_per_snapshot": 10}, "documents_per_snapshot must be"),
        ("pca", {"snapshots": 0}, "snapshots must be"),
        ("pca", {"neighboring_relation": "none"}, "neighboring_relation must be"),
        ("mixture", {"delta": 1e-16}, "delta must be at least"),
    ],
)
def test_settings_that_cannot_be_agreed_on_are_refused(kind, changes, message):
    with pytest.raises(InvalidSettingError, match=message):
        settings_of(kind, **changes)


PUBLIC = {"public_model": "0" * 64, "clipping": "quantile"}


def test_settings_of_another_kind_and_words_of_rows_are_refused():
    keys = keys_of(2)
    for agreed, kind, vocabulary, message in (
        (settings_of("pca"), "mixture", None, "rows of numbers must have no words"),
        (settings_of("pca"), "pca", words_of(8), "rows of numbers must have no words"),
        (protocol.settings_of(), "lda", None, "words must be public"),
        (protocol.settings_of(**PUBLIC), "lda", words_of(D), "public_model=None"),
        (settings_of("pca"), "lda", words_of(8), "topics must have the settings of topics"),
        (protocol.settings_of(), SINGLE_TOPIC, words_of(D), "sites must learn with alpha_0=1e-06"),
        (settings_of("pca"), "svd", None, "kind must be one of"),
    ):
        with pytest.raises(InvalidSettingError, match=message):
            config_of(keys, agreed, kind=kind, vocabulary=vocabulary)


@pytest.fixture(scope="module")
def at_work(tmp_path_factory):
    rows, _ = planted_subspace(3000)
    with sites_of("pca", tmp_path_factory.mktemp("pca"), rows, snapshots=2) as sites:
        yield sites, sites.shares(sites.first)


def of_another_kind(sites, share, folder):
    """Return the site's share of the same round of a config of another kind."""
    settings = settings_of("mixture", snapshots=2)
    config = replace(sites.config, settings=settings, kind="mixture")
    with type(sites)(config, sites.keys, folder, None, sites.rows) as others:
        return others.share(share.site, others.first)


#: What comes in place of the share of a site, and what is said of it.
BAD = {
    "numbers altered": (lambda s, share, _: replace(share, arrays=moved(share, 1)), "altered"),
    "another block": (
        lambda s, share, _: signed(s, share, arrays={"third": share.arrays["second"]}),
        "blocks of its stage, got site=.* without='second'",
    ),
    "another shape": (
        lambda s, share, _: signed(s, share, arrays={"second": share.arrays["second"][:-1]}),
        r"blocks of its stage, got site=.* shape=\(36,\)",
    ),
    "one block more": (
        lambda s, share, _: signed(
            s, share, arrays={**share.arrays, "third": share.arrays["second"]}
        ),
        "blocks of its stage",
    ),
    "another mask": (
        lambda s, share, _: signed(s, share, arrays=moved(share, 2**61)),
        "masks of all sites must cancel",
    ),
    "another kind": (of_another_kind, "its settings is another"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_share_is_refused_in_one_line(at_work, bad, tmp_path):
    sites, shares = at_work
    make, message = BAD[bad]
    wrong = [make(sites, shares[0], tmp_path), *shares[1:]]
    with pytest.raises((InvalidSettingError, ModelFileError), match=message) as refused:
        aggregate(sites.config, sites.first, wrong)
    assert "\n" not in str(refused.value)
    assert "; " in str(refused.value)


def test_a_share_of_an_earlier_round_is_refused(tmp_path):
    rows, _ = planted_subspace(3000)
    with sites_of("pca", tmp_path, np.vstack([rows, rows]), snapshots=2) as sites:
        before = sites.shares(sites.first)
        second = sites.answer(sites.first).next_round
        assert (second.number, second.window, second.stage) == (2, 2, "moments")
        now = sites.shares(second)
        with pytest.raises(InvalidSettingError, match="its round is another, got site='site0'"):
            aggregate(sites.config, second, [before[0], *now[1:]])
        found = aggregate(sites.config, second, now)
        assert found.next_round is None
        (stage,) = found.model.privacy["stages"]
        assert (stage["first"], stage["last"]) == (3000, 5999)


def test_a_round_with_arrays_or_bounds_is_refused(at_work):
    sites, _ = at_work
    this = sites.first
    for changes in (
        {"arrays": {"map": np.eye(3)}},
        {"bounds": ClipBounds(1.0, 1.0, 1.0, "fixed")},
        {"stage": "pairs"},
        {"window": 2},
        {"number": 2},
    ):
        with pytest.raises(InvalidSettingError, match="a round must begin a stage"):
            replace(this, **changes).signed(protocol.HUB).open(sites.config)


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("by", [1000, -1000])
def test_sums_that_no_rows_have_are_refused(kind, by, tmp_path):
    """A site adds rows beyond its slots, or takes off what nobody has."""
    rows = np.tile(np.eye(8)[0], (3000, 1))
    with sites_of(kind, tmp_path, rows) as sites:
        shares = sites.shares(sites.first)
        stage = sites.first.open(sites.config)[1]
        packed = np.zeros(36)
        packed[-1] = by
        steps = np.rint(packed / stage.mechanism.steps["second"]).astype(np.int64)
        arrays = dict(shares[0].arrays)
        arrays["second"] = arrays["second"] + steps.view(np.uint64)
        wrong = [signed(sites, shares[0], arrays=arrays), *shares[1:]]
        with pytest.raises(InvalidSettingError, match="sums of records, and these are not"):
            aggregate(sites.config, sites.first, wrong)


def test_shares_of_rows_are_masked(at_work):
    sites, shares = at_work
    stage = sites.first.open(sites.config)[1]
    step, slots = stage.mechanism.steps["second"], 3000
    for share in shares:
        assert np.abs(share.arrays["second"].view(np.int64).astype(float)).max() > 2.0**60
    total = added(share.arrays["second"] for share in shares)
    assert np.abs(total * step).max() < 1.1 * slots


@pytest.mark.parametrize("colluders", [0, 1])
def test_slots_to_come_are_those_of_the_stages_that_come(colluders, tmp_path):
    """With colluders sites add more noise, and stages are planned for it."""
    # The plan changes with the noise here.
    changes = {"n_features": 1100, "n_components": 5, "epsilon": 3.0}
    changes |= {"documents_per_snapshot": 20_000, "refinement_rounds": None}
    with protocol.Sites.of(2, tmp_path, None, None, colluders, **changes) as sites:
        found = sum(site.slots_to_come(sites.first) for site in sites.sites.values())
        assert found == 20_000
