"""All that `python -m bench papers` can run, by name."""

from __future__ import annotations

from bench.papers.cape_figures import CAPE
from bench.papers.dplda_figures import DPLDA
from bench.papers.wa16_appendix_b import WA16_APPENDIX_B
from bench.papers.wa16_deflation import WA16_DEFLATION
from bench.papers.wa16_figure_1 import WA16_FIGURE_1
from bench.papers.wa16_theorem_3_1 import WA16_THEOREM_3_1
from bench.papers.wa16_theorem_4_2 import WA16_THEOREM_4_2

REPRODUCTIONS = {
    scenario.id: scenario
    for scenario in (
        *(WA16_FIGURE_1, WA16_THEOREM_3_1, WA16_THEOREM_4_2, WA16_APPENDIX_B, WA16_DEFLATION),
        *(*DPLDA, *CAPE),
    )
}
