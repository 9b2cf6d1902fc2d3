"""All that `python -m bench papers` can run, by name."""

from __future__ import annotations

from bench.papers.cape import CAPE
from bench.papers.dplda import DPLDA
from bench.papers.wa16_noise import WA16_APPENDIX_B, WA16_FIGURE_1
from bench.papers.wa16_private import WA16_DEFLATION, WA16_THEOREM_4_2
from bench.papers.wa16_stream import WA16_THEOREM_3_1

REPRODUCTIONS = {
    scenario.id: scenario
    for scenario in (
        *(WA16_FIGURE_1, WA16_THEOREM_3_1, WA16_THEOREM_4_2, WA16_APPENDIX_B, WA16_DEFLATION),
        *(*DPLDA, *CAPE),
    )
}
