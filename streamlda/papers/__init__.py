"""Algorithms of the papers, as published, by the names that the papers' readers know.

Which item of which paper each of them is, its test and its figures beside the paper's are in
`README.md` of this folder; nothing else imports this package.
"""

from streamlda.papers.dplda.calibration import make_plan, procedure_1
from streamlda.papers.dplda.configurations import DPLDASettings, fit_dp_lda
from streamlda.papers.dplda.flow import configuration
from streamlda.papers.dplda.sensitivity import Facts
from streamlda.papers.dpvi import DPVISettings, fit_dp_vi
from streamlda.papers.imtiaz_sarwate.cape import CapePlan
from streamlda.papers.imtiaz_sarwate.gaussian_mixture import (
    MixtureSite,
    component_error,
    learn_mixture,
)
from streamlda.papers.imtiaz_sarwate.pca import (
    captured_energy,
    clipped,
    partial_root_subspace,
    principal_subspace,
    second_sum,
)
from streamlda.papers.imtiaz_sarwate.simulated import Promise, SimulatedSites
from streamlda.papers.imtiaz_sarwate.single_topic import SingleTopicSite, learn_topics
from streamlda.papers.laplace import release_laplace
from streamlda.papers.wang_anandkumar.algorithm_1 import random_marginal_power, robust_tensor_power
from streamlda.papers.wang_anandkumar.compositions import wang_anandkumar_table
from streamlda.papers.wang_anandkumar.neighbours import Neighbours
from streamlda.papers.wang_anandkumar.noisy import NoisyPower, Schedule, perturb_tensor
from streamlda.papers.wang_anandkumar.tensors import (
    DenseTensor,
    FactoredTensor,
    operator_norm,
    symmetrised,
)
from streamlda.spectral.associations import VectorAssociation
from streamlda.spectral.online import OnlinePower, suggested_documents
from streamlda.spectral.power import DeflatedPower, SimultaneousPower

__all__ = [
    "CapePlan",
    "DPLDASettings",
    "DPVISettings",
    "DeflatedPower",
    "DenseTensor",
    "FactoredTensor",
    "Facts",
    "MixtureSite",
    "Neighbours",
    "NoisyPower",
    "OnlinePower",
    "Promise",
    "Schedule",
    "SimulatedSites",
    "SimultaneousPower",
    "SingleTopicSite",
    "VectorAssociation",
    "captured_energy",
    "clipped",
    "component_error",
    "configuration",
    "fit_dp_lda",
    "fit_dp_vi",
    "learn_mixture",
    "learn_topics",
    "make_plan",
    "operator_norm",
    "partial_root_subspace",
    "perturb_tensor",
    "principal_subspace",
    "procedure_1",
    "random_marginal_power",
    "release_laplace",
    "robust_tensor_power",
    "second_sum",
    "suggested_documents",
    "symmetrised",
    "wang_anandkumar_table",
]
