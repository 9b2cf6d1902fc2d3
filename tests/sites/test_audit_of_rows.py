"""Sums of rows against an aggregator that knows all rows but one, helped by one of three sites.

The adversary, its test and its false alarms are those of `tests.sites.test_audit_of_sites`. Under
replace-one the canary is one of the two rows whose contributions differ most, beyond the radius.

Power, at epsilon 4 and delta 1e-5 (mu 0.92): of a sound release, 20,000 draws of each neighbour
show less than 0.9 of the claim at 95 % with probability 7e-10. Each planted bug has at least 1.41
times that mu, which 2,000 draws miss with probability 2e-10.
"""

import numpy as np
import pytest

from streamlda.private import mixture, rows, vector_moments
from tests.sites.rows import planted_mixture, planted_subspace, sites_of
from tests.sites.test_audit_of_sites import Scene, audit, of_the_sum, one_site_without_noise
from tests.sites.test_kinds import FARTHEST, ROWS

pytestmark = [pytest.mark.statistical, pytest.mark.soak]

PLANT = {"pca": planted_subspace, "mixture": planted_mixture}
DRAWS, DRAWS_OF_A_BUG = 20_000, 2_000


def row(kind):
    """Return what puts a long row in place of the one that differs most from it."""
    angle = FARTHEST[kind]
    other, one = 7 * np.array([[np.cos(angle), np.sin(angle), *[0.0] * 6], [1.0, *[0.0] * 7]])

    def canary(documents, slot):
        values = documents["site0"].values
        for made in (other, one):
            values[slot] = made
            yield rows.Rows(values.copy())

    return canary


def audited(kind, folder, draws):
    with sites_of(kind, folder, PLANT[kind](3000)[0], colluders=1, epsilon=4.0) as sites:
        return audit(sites, of_the_sum, draws, scene=Scene(sites, sites.first, row(kind)))


@pytest.mark.parametrize("kind", ROWS)
def test_sums_of_rows_give_away_what_is_claimed(kind, tmp_path):
    finding = audited(kind, tmp_path, DRAWS)
    print(f"{kind}: {finding}")
    assert finding.sound, finding
    assert finding.likely > 0.9 * finding.claim, finding


def sensitivity_of_the_paper(patch):
    """Noise for a row that is added or left out, where it is replaced."""
    for statistic in (vector_moments.SecondStatistic, mixture.MixtureStatistic):
        patch.setattr(statistic, "ratio", 1.0)


def rows_of_any_length(patch):
    for module in (vector_moments, mixture):
        patch.setattr(module, "clipped", lambda samples, radius: np.asarray(samples))


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize(
    "bug", [sensitivity_of_the_paper, rows_of_any_length, one_site_without_noise]
)
def test_a_planted_bug_in_sums_of_rows_is_found(kind, bug, tmp_path, monkeypatch):
    bug(monkeypatch)
    finding = audited(kind, tmp_path, DRAWS_OF_A_BUG)
    print(f"{kind}: {finding}")
    assert not finding.sound, finding
