"""What the constructors and functions of the wing refuse, one row a rule."""

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.guarantee.mechanism import Block
from streamlda.guarantee.noise import SeededNoise
from streamlda.papers.dplda.calibration import make_plan
from streamlda.papers.dplda.configurations import DPLDASettings, release
from streamlda.papers.dplda.flow import configuration
from streamlda.papers.dplda.moments import DENSE_WORDS, LDAMoments
from streamlda.papers.dplda.sensitivity import Facts
from streamlda.papers.dplda.spectral import SpectralSteps, factors_of
from streamlda.papers.dpvi import DPVISettings, fit_dp_vi, subsampled_multiplier
from streamlda.papers.imtiaz_sarwate.cape import CapePlan
from streamlda.papers.imtiaz_sarwate.gaussian_mixture import MixtureSite, learn_mixture
from streamlda.papers.imtiaz_sarwate.pca import captured_energy, clipped, principal_subspace
from streamlda.papers.imtiaz_sarwate.simulated import SCHEMES, Promise, SimulatedSites
from streamlda.papers.imtiaz_sarwate.single_topic import SingleTopicSite, learn_topics
from streamlda.papers.laplace import discrete_laplace, release_laplace
from streamlda.papers.wang_anandkumar import compositions
from streamlda.papers.wang_anandkumar.algorithm_1 import random_marginal_power, robust_tensor_power
from streamlda.papers.wang_anandkumar.neighbours import DocumentTensor, Neighbours
from streamlda.papers.wang_anandkumar.noisy import NoisyPower, Schedule, perturb_tensor
from streamlda.papers.wang_anandkumar.tensors import (
    DenseTensor,
    FactoredTensor,
    ImplicitTensor,
    operator_norm,
    symmetrised,
    z_eigenpairs,
)
from streamlda.spectral.power import DeflatedPower
from tests.corpora import batch_of

NOISE = SeededNoise(0)
ENTRY, DOCUMENTS = Neighbours("entry", magnitude=2.0), Neighbours("add-remove")
TENSOR = FactoredTensor([1.0], np.eye(2)[:, :1])
QUARTIC = np.zeros((3, 3, 3, 3))
QUARTIC[2, 2, 2, 1] = 1e-3
TINY = batch_of([[0, 1, 2], [1]], 6)
ROWS = batch_of([[0, 1, 1], [2, 2, 2], [0, 0, 1]], 3)
HALVES = DocumentBatch(ROWS.counts / 2, ROWS.word_ids, ROWS.row_pointers, 3, integral=False)
MANY = batch_of([[0, 1, DENSE_WORDS]] * 3, DENSE_WORDS + 1)
X, LONG = {"x": np.zeros(3)}, [{"x": np.full(3, 99.0)}] * 2
BLOCK = Block("x", (3,), 1.0)


def schedule(**wrong):
    return Schedule(**{"epsilon": 1.0, "delta": 1e-6, "neighbours": ENTRY} | wrong)


def noisy(tensor, order=3):
    method = DeflatedPower(2, 1, order=order, n_restarts=2, n_iterations=2)
    NoisyPower(method, tensor, schedule(), NOISE).step()


def laplace(sensitivity, roundings=1):
    bounds = {"magnitude": 1.0, "roundings": roundings}
    return release_laplace(np.zeros(1), sensitivity, 1.0, NOISE, **bounds)


def dplda(**wrong):
    return DPLDASettings(**{"n_components": 2, "epsilon": 1.0, "delta": 1e-5} | wrong)


def plan(name="1", epsilon=1.0, delta=1e-5, mechanism="gaussian", accounted="exact", cells=0):
    chosen = {"mechanism": mechanism, "accounted": accounted}
    cells = {"gaussian_cells": cells, "laplace_cells": 0}
    return make_plan(configuration(name), epsilon, delta, **chosen, **cells)


def steps(k=1):
    return SpectralSteps(LDAMoments(ROWS, 0.5), k)


def dpvi(**wrong):
    values = {"n_components": 3, "epsilon": 1.0, "delta": 1e-5, "clip_norm": 20.0, "steps": 1}
    return DPVISettings(**values | wrong)


def network(sizes=(5, 5), scheme="cape", promises=None, **options):
    return SimulatedSites(sizes, promises or Promise(0.5, 1e-3), scheme, noise=NOISE, **options)


def topics(n=2, words=(12, 12)):
    sites = [SingleTopicSite(batch_of([[0, 1, 2]] * 2, d)) for d in words]
    return learn_topics(sites, n, network((2, 2)), rng=np.random.default_rng(0))


def mixture(n=2, radii=(1.0, 1.0)):
    sites = [MixtureSite(np.ones((5, 8)), radius) for radius in radii]
    return learn_mixture(sites, n, network(), rng=np.random.default_rng(0))


def directions(*totals, n=2):
    return principal_subspace(totals, n, network(), 1.0)


REFUSED = [
    (lambda: schedule(epsilon=0.0), "epsilon=0.0"),
    (lambda: schedule(epsilon=8.0, calibration="paper").noise_multiplier(1), "up to 1 a rel"),
    (lambda: noisy(TENSOR, order=4), "order=4"),
    (lambda: Neighbours("entry"), "need a magnitude"),
    (lambda: Neighbours("entry", magnitude=1.0, n_documents=3), "n_documents=3"),
    (lambda: Neighbours("add-remove", whitening=np.zeros((3, 2))), "other than 0"),
    (lambda: DocumentTensor(TINY, 1), "n_documents=1 held=2"),
    (lambda: perturb_tensor(np.eye(27)[5].reshape(3, 3, 3), 1, 1e-6, ENTRY, NOISE), "symmetric"),
    (lambda: perturb_tensor(np.zeros((2, 2, 2)), 1, 1e-6, DOCUMENTS, NOISE), "notion='add-remove'"),
    (lambda: random_marginal_power(FactoredTensor([1], np.eye(1), 4), 1), "order=4"),
    (lambda: random_marginal_power(TENSOR, 3), "n_components=3"),
    (lambda: robust_tensor_power(TENSOR, 4), "n_components=4 dimension=2"),
    (lambda: robust_tensor_power(TENSOR, 1, noise_floor=np.nan), "noise_floor=nan"),
    (lambda: DenseTensor(np.ones((2, 2, 3))), r"got shape=\(2, 2, 3\)"),
    (lambda: DenseTensor(np.zeros((3, 3, 3)), 4), "4 equal sides, got shape"),
    (lambda: DenseTensor(np.full((2, 2, 2, 2), np.inf)), "must be finite"),
    (lambda: DenseTensor(QUARTIC), "symmetric, got largest_difference=0.001"),
    (lambda: FactoredTensor([1.0], np.eye(2)), r"eigenvalues=\(1,\)"),
    (lambda: FactoredTensor([np.nan, 1], np.eye(2)), "must be finite"),
    (lambda: FactoredTensor([1, 1], np.eye(2), 2), "order=2"),
    (lambda: ImplicitTensor(2, lambda u: u[:1]).apply(np.eye(2)), r"images=\(1, 2\) vectors="),
    (lambda: symmetrised(np.eye(2)), r"shape=\(2, 2\)"),
    (lambda: symmetrised(np.full((1, 2, 3), np.nan)), "must be finite"),
    (lambda: operator_norm(TENSOR, 0), "n_starts=0"),
    (lambda: z_eigenpairs(TENSOR, sign=0), "sign=0"),
    (lambda: compositions.advanced_epsilon(1, 2, 0), "slack=0"),
    (lambda: compositions.wang_anandkumar(0.0, 1e-5, 1), "above 0 and up to 1 a release"),
    (lambda: dplda(configuration="0"), "must be one of 1, 2, 3, 4, got"),
    (lambda: configuration("5"), "configuration='5'; take 1, the only one"),
    (
        lambda: release(steps(), dplda(n_components=1, alpha_0=0.5, parts={"e2": 1.0})),
        "parts must be above 0",
    ),
    (lambda: steps(3), "n_components=3 n_features=3"),
    (lambda: factors_of(np.eye(1)[None], n_iterations=0), "n_iterations=0"),
    (lambda: Facts(2, 1, 1.0), "n_documents=2"),
    (lambda: LDAMoments(ROWS, 0.0), "alpha_0=0.0"),
    (lambda: LDAMoments(MANY, 1.0).triples(), f"n_features={DENSE_WORDS + 1}"),
    (lambda: plan(delta=0.0), "delta=0.0"),
    (lambda: plan(delta=1e-12, cells=10**9), "10 times what the samplers take"),
    (lambda: plan("2", mechanism="laplace"), "only configuration 1 has, got configuration='2'"),
    (lambda: plan(epsilon=8.0, accounted="paper"), "epsilon <= 1 a release only"),
    (lambda: laplace(1e-9, 2**40), "rounding must cost at most 1 %"),
    (lambda: laplace(1e-12), r"fewer than 2\^61 steps"),
    (lambda: discrete_laplace(NOISE, 0), r"from 1 to 2\^40 steps, got scale=0"),
    (lambda: dpvi(clip_norm=0.0), "clip_norm=0.0"),
    (lambda: dpvi(epsilon=None), "epsilon=None"),
    (lambda: fit_dp_vi(ROWS, dpvi(), n_max=2), "n_max=2 documents=3"),
    (lambda: subsampled_multiplier(1.0, -1e-9, 0.1, 10), "delta must leave something"),
    (lambda: fit_dp_vi(ROWS, dpvi(sampling_rate=0.5), n_max=10**15), "delta must leave something"),
    (lambda: CapePlan.for_means([3, 0], 1.0), "every site must have a document"),
    (lambda: CapePlan.for_means([3, 3], 1.0).gaussian_losses(2), "colluders=2"),
    (lambda: CapePlan.for_means([3, 3], 1.0).after_drop_out([0, 0]), "sites that are left"),
    (lambda: Promise(0, 0.1), "epsilon=0"),
    (lambda: Promise(1, 0.1).noise_multiplier(2.0), "part=2.0"),
    (lambda: network(promises=[Promise(1, 0.1)]), "promises=1"),
    (lambda: network(site=2), "site=2"),
    (lambda: network().release([X], [BLOCK]), "site_sums=1"),
    (lambda: network().release([X] * 2, [BLOCK], ratio=3), "ratio=3"),
    (lambda: topics(13), "topics=13"),
    (lambda: topics(words=(12, 13)), "words="),
    (lambda: mixture(8), "n_components=8"),
    (lambda: mixture(radii=(1.0, 2.0)), "one dimension and radius"),
    (lambda: directions(np.eye(3), np.eye(4)), "shapes="),
    (lambda: directions(np.eye(3), np.eye(3), n=4), "n_components=4"),
    (lambda: clipped(np.ones((2, 2)), 0.0), "radius=0.0"),
    (lambda: captured_energy(np.ones((3, 1)), np.eye(3)), "orthonormal"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_settings_out_of_range_are_refused_by_name(call, message):
    with pytest.raises(InvalidSettingError, match=message):
        call()


UNFIT = [
    (lambda: clipped(np.ones(3), 1.0), r"shape=\(3,\)"),
    (lambda: LDAMoments(HALVES, 1.0), "need whole counts"),
    (lambda: perturb_tensor(np.full((3, 3, 3), 9.0), 1.0, 1e-6, ENTRY, NOISE), "norm at most"),
    *((lambda s=s: network(scheme=s).release(LONG, [BLOCK]), "clip") for s in SCHEMES),
]


@pytest.mark.parametrize(("call", "message"), UNFIT)
def test_documents_without_a_bound_are_refused(call, message):
    with pytest.raises(InvalidDocumentsError, match=message):
        call()


def test_too_few_documents_are_refused():
    with pytest.raises(InsufficientDataError, match="documents=2; add more"):
        LDAMoments(ROWS.rows(0, 2), 1.0)
