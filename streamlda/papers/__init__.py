"""Algorithms of the papers, as published, by the names that the papers' readers know.

Which item of which paper each of them is, its test and its figures beside the paper's are in
`README.md` of this folder; nothing else imports this package.
"""

from streamlda.papers.dplda.calibration import make_plan as make_plan
from streamlda.papers.dplda.calibration import procedure_1 as procedure_1
from streamlda.papers.dplda.configurations import DPLDASettings as DPLDASettings
from streamlda.papers.dplda.configurations import fit_dp_lda as fit_dp_lda
from streamlda.papers.dplda.flow import configuration as configuration
from streamlda.papers.dplda.sensitivity import Facts as Facts
from streamlda.papers.dpvi import DPVISettings as DPVISettings
from streamlda.papers.dpvi import fit_dp_vi as fit_dp_vi
from streamlda.papers.imtiaz_sarwate.cape import CapePlan as CapePlan
from streamlda.papers.imtiaz_sarwate.gaussian_mixture import MixtureSite as MixtureSite
from streamlda.papers.imtiaz_sarwate.gaussian_mixture import component_error as component_error
from streamlda.papers.imtiaz_sarwate.gaussian_mixture import learn_mixture as learn_mixture
from streamlda.papers.imtiaz_sarwate.pca import captured_energy as captured_energy
from streamlda.papers.imtiaz_sarwate.pca import clipped as clipped
from streamlda.papers.imtiaz_sarwate.pca import partial_root_subspace as partial_root_subspace
from streamlda.papers.imtiaz_sarwate.pca import principal_subspace as principal_subspace
from streamlda.papers.imtiaz_sarwate.pca import second_sum as second_sum
from streamlda.papers.imtiaz_sarwate.simulated import Promise as Promise
from streamlda.papers.imtiaz_sarwate.simulated import SimulatedSites as SimulatedSites
from streamlda.papers.imtiaz_sarwate.single_topic import SingleTopicSite as SingleTopicSite
from streamlda.papers.imtiaz_sarwate.single_topic import learn_topics as learn_topics
from streamlda.papers.laplace import release_laplace as release_laplace
from streamlda.papers.wang_anandkumar.algorithm_1 import (
    random_marginal_power as random_marginal_power,
)
from streamlda.papers.wang_anandkumar.algorithm_1 import robust_tensor_power as robust_tensor_power
from streamlda.papers.wang_anandkumar.compositions import (
    wang_anandkumar_table as wang_anandkumar_table,
)
from streamlda.papers.wang_anandkumar.neighbours import Neighbours as Neighbours
from streamlda.papers.wang_anandkumar.noisy import NoisyPower as NoisyPower
from streamlda.papers.wang_anandkumar.noisy import Schedule as Schedule
from streamlda.papers.wang_anandkumar.noisy import perturb_tensor as perturb_tensor
from streamlda.papers.wang_anandkumar.tensors import DenseTensor as DenseTensor
from streamlda.papers.wang_anandkumar.tensors import FactoredTensor as FactoredTensor
from streamlda.papers.wang_anandkumar.tensors import operator_norm as operator_norm
from streamlda.papers.wang_anandkumar.tensors import symmetrised as symmetrised
from streamlda.spectral.associations import VectorAssociation as VectorAssociation
from streamlda.spectral.online import OnlinePower as OnlinePower
from streamlda.spectral.online import suggested_documents as suggested_documents
from streamlda.spectral.power import DeflatedPower as DeflatedPower
from streamlda.spectral.power import SimultaneousPower as SimultaneousPower
