"""Checks of a release against a site that adds other sums than those of documents.

A share is masked, so nothing can be checked of one site. But sums of documents keep rules, and the
release is their sum with noise of known size:

- every entry that counts is at least 0, and every block at most as long as all slots allow;
- frequencies of words sum to the number of documents, those of pairs too: 1'p1 = 1, 1'P2 1 = 1;
- pairs have the words of their documents: 1'P2 = p1', where nothing is clipped (worst-case bounds);
- there are no more documents than slots, in any block.

A release that breaks one by `FAR` standard deviations of its noise is refused: the round is spent,
and no model follows. The README of this folder says, in figures, what is left to a site.

Privacy: this reads releases only.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from streamlda.private.packing import unpack_pairs
from streamlda.private.settings import PrivateSettings
from streamlda.private.stage import Stage
from streamlda.sites.faults import check
from streamlda.utils.arrays import Array

#: Standard deviations: noise alone is further off in one of 4e11 values.
FAR = 7.0

#: What roundings may make of a sum, for each slot.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class SumCheck:
    """A rule of sums: how far a release is from it, and how far it may be."""

    rule: str
    found: float
    most: float


def check_sums(
    number: int, settings: PrivateSettings, stage: Stage, sums: Mapping[str, Array]
) -> list[SumCheck]:
    """Return the checks of the released sums of a stage of a round; refuse what breaks a rule.

    Time O(values), and O(d m) more for pairs seen through a projection.
    """
    slots, stddevs = stage.last - stage.first, stage.stddevs()
    slack = _ROUNDING * slots
    made = []
    for block in stage.mechanism.blocks:
        name, values, sd = block.name, sums[block.name], stddevs[block.name]
        if name.endswith("_kept"):
            most = slots + FAR * sd + slack
            made.append(SumCheck(f"{name}: documents", float(values), most))
            continue
        # Noise of n values is about sqrt(n) long.
        reach = sd * (math.sqrt(values.size) + FAR)
        most = (slots + slack) * block.l2_clip_norm + reach
        made.append(SumCheck(f"{name}: length", float(np.linalg.norm(values)), most))
        if name.endswith("_norms"):
            most = slots + FAR * sd * math.sqrt(values.size) + slack
            made.append(SumCheck(f"{name}: documents", float(values.sum()), most))
        if block.nonnegative:
            most = FAR * sd + slack * block.l2_clip_norm
            made.append(SumCheck(f"{name}: below 0", float(-values.min()), most))
    if "first" in sums:
        made += _check_pairs(settings, stage, sums, slack)
    if "first_norms" in sums:
        apart = float(sums["first_norms"].sum() - sums["pair_norms"].sum())
        square = sum(sums[name].size * stddevs[name] ** 2 for name in ("first_norms", "pair_norms"))
        made.append(_check_zero("norms: documents of words and of pairs", apart, square, slack))
    for each in made:
        about = {"check": each.rule, "found": f"{each.found:.6g}", "most": f"{each.most:.6g}"}
        check(each.found <= each.most, "documents", **about, round=number)
    return made


def _check_zero(rule: str, apart: Array | float, square: Array | float, slack: float) -> SumCheck:
    """Return the check that numbers of these variances are 0."""
    stddevs = np.abs(apart) / (FAR * np.sqrt(square) + slack)
    return SumCheck(f"{rule}, over what is allowed", float(np.max(stddevs)), 1.0)


def _check_pairs(
    settings: PrivateSettings, stage: Stage, sums: Mapping[str, Array], slack: float
) -> list[SumCheck]:
    first, stddevs = sums["first"], stage.stddevs()
    of_first = stddevs["first"] ** 2
    apart = float(first.sum() - sums["first_kept"])
    square = len(first) * of_first + stddevs["first_kept"] ** 2
    made = [_check_zero("first: words for each document", apart, square, slack)]
    pair = sums.get("pair")
    if pair is None or pair.ndim > 1:
        return made
    # Of all words, or of the common ones.
    d, of_pair = math.isqrt(2 * len(pair)), stddevs["pair"] ** 2
    rows = unpack_pairs(pair, d).sum(axis=0)
    apart = float(rows.sum() - sums["pair_kept"])
    square = d * d * of_pair + stddevs["pair_kept"] ** 2
    made.append(_check_zero("pair: pairs for each document", apart, square, slack))
    if settings.clipping == "worst-case" and stage.name == "pairs":
        square = of_first + of_pair * (1 + (d - 1) / 2)
        made.append(_check_zero("pair: words of the pairs", rows - first, square, slack))
    return made
