"""Settings of the wing without which its promises of privacy would not hold, one row a rule."""

from functools import partial

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.guarantee.mechanism import Block
from streamlda.guarantee.noise import SeededNoise
from streamlda.papers.dplda.calibration import make_plan
from streamlda.papers.dplda.configurations import DPLDASettings
from streamlda.papers.dplda.flow import configuration
from streamlda.papers.dplda.moments import DENSE_WORDS, LDAMoments
from streamlda.papers.dpvi import DPVISettings, fit_dp_vi
from streamlda.papers.imtiaz_sarwate.cape import CapePlan
from streamlda.papers.imtiaz_sarwate.gaussian_mixture import MixtureSite, learn_mixture
from streamlda.papers.imtiaz_sarwate.pca import partial_root_subspace
from streamlda.papers.imtiaz_sarwate.simulated import SCHEMES, Promise, SimulatedSites
from streamlda.papers.imtiaz_sarwate.single_topic import SingleTopicSite, learn_topics
from streamlda.papers.laplace import release_laplace
from streamlda.papers.wang_anandkumar import compositions
from streamlda.papers.wang_anandkumar.neighbours import Neighbours
from streamlda.papers.wang_anandkumar.noisy import NoisyPower, Schedule, perturb_tensor
from streamlda.papers.wang_anandkumar.tensors import DenseTensor, FactoredTensor
from streamlda.spectral.power import DeflatedPower
from tests.corpora import batch_of

NOISE = SeededNoise(0)
ENTRY, DOCUMENTS = Neighbours("entry", magnitude=2.0), Neighbours("add-remove")
ROWS = batch_of([[0, 1, 1], [2, 2, 2], [0, 0, 1]], 3)
HALVES = DocumentBatch(ROWS.counts / 2, ROWS.word_ids, ROWS.row_pointers, 3, integral=False)
MANY = batch_of([[0, 1, DENSE_WORDS]] * 3, DENSE_WORDS + 1)
X, LONG = {"x": np.zeros(3)}, [{"x": np.full(3, 99.0)}] * 2
BLOCK = Block("x", (3,), 1.0)


def noisy(order):
    method = DeflatedPower(2, 1, order=order, n_restarts=2, n_iterations=2)
    tensor = FactoredTensor([1.0], np.eye(2)[:, :1])
    NoisyPower(method, tensor, Schedule(1.0, 1e-6, ENTRY), NOISE)


def laplace(sensitivity, roundings=1):
    bounds = {"magnitude": 1.0, "roundings": roundings}
    return release_laplace(np.zeros(1), sensitivity, 1.0, NOISE, **bounds)


def plan(name="1", epsilon=1.0, mechanism="gaussian", accounted="exact", **more):
    how = {"mechanism": mechanism, "accounted": accounted, "laplace_cells": 0, **more}
    return make_plan(configuration(name), epsilon, 1e-5, **{"gaussian_cells": 0, **how})


dpvi = partial(DPVISettings, n_components=3, epsilon=1.0, delta=1e-5, clip_norm=20.0, steps=1)


def network(scheme="cape", sizes=(5, 5)):
    return SimulatedSites(sizes, Promise(0.5, 1e-3), scheme, noise=NOISE)


def topics(words):
    sites = [SingleTopicSite(batch_of([[0, 1, 2]] * 2, d)) for d in words]
    return learn_topics(sites, 2, network(sizes=(2, 2)), rng=np.random.default_rng(0))


def mixture(radii):
    sites = [MixtureSite(np.ones((5, 8)), radius) for radius in radii]
    return learn_mixture(sites, 2, network(), rng=np.random.default_rng(0))


REFUSED = [
    (lambda: Schedule(0.0, 1e-6, ENTRY), "epsilon=0.0"),
    (lambda: Schedule(8.0, 1e-6, ENTRY, "paper").noise_multiplier(1), "up to 1 a rel"),
    (lambda: noisy(4), "order=4"),
    (lambda: Neighbours("entry"), "lack a magnitude"),
    (lambda: perturb_tensor(np.eye(27)[5].reshape(3, 3, 3), 1, 1e-6, ENTRY, NOISE), "symmetric"),
    (lambda: perturb_tensor(np.zeros((2, 2, 2)), 1, 1e-6, DOCUMENTS, NOISE), "notion='add-remove'"),
    (lambda: DenseTensor(np.full((2, 2, 2), np.nan)), "finite"),
    (lambda: DenseTensor(np.ones((2, 2, 3))), r"got shape=\(2, 2, 3\)"),
    (lambda: compositions.wang_anandkumar(0.0, 1e-5, 1), "above 0 and up to 1 a release"),
    (lambda: DPLDASettings(n_components=2, epsilon=1, delta=0.1, configuration="0"), "must be one"),
    (lambda: LDAMoments(MANY, 1.0).triples(), f"n_features={DENSE_WORDS + 1}"),
    (lambda: plan(gaussian_cells=10**15), "10 times what the samplers take"),
    (lambda: plan("2", mechanism="laplace"), "in this configuration, got configuration='2'"),
    (lambda: plan(epsilon=8.0, accounted="paper"), "epsilon <= 1 a release only"),
    (lambda: plan(parts={"e2": 1.0}), "parts must be above 0"),
    (lambda: laplace(1e-9, 2**40), "rounding costs more than 1 %"),
    (lambda: laplace(1e-12), r"more than 2\^61 steps"),
    (lambda: dpvi(epsilon=None), "epsilon=None"),
    (lambda: fit_dp_vi(ROWS, dpvi(), n_max=2), "n_max=2 documents=3"),
    (lambda: fit_dp_vi(ROWS, dpvi(sampling_rate=0.5), n_max=10**15), "delta leaves nothing"),
    (lambda: CapePlan((0.5, 0.6), (1, 1)), "weights not in 0..1 or not of sum 1"),
    (lambda: CapePlan((0.5, 0.5), (1, np.nan)), "standard deviation > 0 and finite"),
    (lambda: CapePlan((0.5, 0.5), (1, 1)).losses(2), "colluders=2"),
    (lambda: Promise(1, 0.1).noise_multiplier(2.0), "part=2.0"),
    (lambda: network().release([X] * 2, dict, [BLOCK], ratio=3), "ratio=3"),
    (lambda: topics((12, 13)), "words="),
    (lambda: mixture((1.0, 2.0)), "differ in dimension or radius"),
    (lambda: partial_root_subspace([np.eye(3)] * 2, 2, network(), 1.0), "scheme='cape'"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_settings_out_of_range_are_refused_by_name(call, message):
    with pytest.raises(InvalidSettingError, match=message):
        call()


UNFIT = [
    (lambda: LDAMoments(HALVES, 1.0), "are given fractions"),
    (lambda: perturb_tensor(np.full((3, 3, 3), 9.0), 1.0, 1e-6, ENTRY, NOISE), "norm above"),
    *((lambda s=s: network(s).release(LONG, dict, [BLOCK]), "clip") for s in SCHEMES),
    (lambda: LDAMoments(ROWS.rows(0, 2), 1.0), "documents=2; add more"),
]


@pytest.mark.parametrize(("call", "message"), UNFIT)
def test_documents_without_a_bound_are_refused(call, message):
    with pytest.raises((InvalidDocumentsError, InsufficientDataError), match=message):
        call()
