"""The papers' formulas, digit for digit as worked out by other accountants."""

import math
from pathlib import Path

from streamlda.guarantee.accounting import noise_multiplier
from streamlda.papers.wang_anandkumar.compositions import (
    advanced_epsilon,
    wang_anandkumar,
    wang_anandkumar_table,
)

ROOT = Path(__file__).parents[3]

#: delta, K, noise used, advanced, exact, Renyi, noise needed, ratio; epsilon is 1.
GOLDEN = """
1e-05 10 69.1 1.2915 0.14530 0.169 11.80 5.86
1e-05 100 235.0 1.2898 0.13421 0.160 37.31 6.30
1e-05 1000 791.7 1.2893 0.12523 0.147 117.97 6.71
1e-05 10000 2648.4 1.2891 0.11776 0.136 373.06 7.10
1e-06 10 79.4 1.3082 0.14836 0.164 13.36 5.94
1e-06 100 267.5 1.3068 0.13863 0.152 42.25 6.33
1e-06 1000 895.0 1.3063 0.13054 0.143 133.60 6.70
1e-06 10000 2977.0 1.3062 0.12366 0.135 422.47 7.05
"""


def renyi_epsilon(row):
    from dp_accounting import GaussianDpEvent, SelfComposedDpEvent
    from dp_accounting.rdp import RdpAccountant

    event = SelfComposedDpEvent(GaussianDpEvent(row.formula_noise_multiplier), row.releases)
    return float(RdpAccountant().compose(event).get_epsilon(row.delta))


def test_the_table_of_wang_and_anandkumar_here_and_on_the_page_of_benchmarks():
    page = (ROOT / "bench" / "private.md").read_text("utf-8")
    for row, golden in zip(wang_anandkumar_table(), GOLDEN.strip().splitlines(), strict=True):
        used = f"{row.formula_noise_multiplier:.1f}"
        needed = f"{row.needed_noise_multiplier:.2f}"
        assert golden == (
            f"{row.delta:.0e} {row.releases} {used} "
            f"{row.advanced_epsilon:.4f} {row.exact_epsilon:.5f} {renyi_epsilon(row):.3f} "
            f"{needed} {row.ratio:.2f}"
        )
        cells = [f"{row.delta:.0e}", row.releases, used, needed, f"{row.ratio:.2f}"]
        assert f"| {' | '.join(map(str, cells))} |" in page
    rows = wang_anandkumar_table(0.5, iter([1e-4]), iter([3, 7]))
    assert [(row.delta, row.releases) for row in rows] == [(1e-4, 3), (1e-4, 7)]
    assert rows[0].needed_noise_multiplier == noise_multiplier(0.5, 1e-4, 3)


def test_the_argument_fails_by_up_to_the_root_of_two():
    def ratio(delta):
        return advanced_epsilon(wang_anandkumar(1, delta, 10**6)[0], 10**6, delta / 2)

    assert ratio(0.24) < 1 < ratio(0.22)
    assert 1.40 < ratio(1e-250) < math.sqrt(2)
    assert ratio(1e-50) < ratio(1e-250)
