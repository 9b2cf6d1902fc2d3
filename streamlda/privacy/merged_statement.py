"""Privacy statement of a model that was made of several artefacts."""

import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from streamlda.privacy.statement import (
    IN_MEMORY,
    OF_LEDGER,
    PRIVATE,
    PUBLIC,
    SEEDED,
    apart,
    check_statement,
    not_private,
    renew,
    require_said,
    state_seeds,
    sum_upward,
    with_ends,
)

#: What tells releases apart, in the order in which they are sorted.
_STAGE = ("first", "last", "name", "noise_multiplier")
_Stage = tuple[Any, ...]

#: What must be the same of artefacts that are merged.
_ONE_KIND = (
    *("privacy_unit", "documents_per_user", "neighboring_relation", "mode", "horizon"),
    *("noise", "vocabulary", "mechanism", "excluded", "public_model", "sites"),
)


def merge_statements(statements: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the statement of a model that was made of several artefacts, or refuse it.

    The promise of a ledger is about all that is released under it, so artefacts of one ledger keep
    it. So that no document counts twice, each must have stages of its own, on other record slots
    than those of any other; what they have in common may be the choice of words. Under several
    ledgers a document may be in each, and what they promise adds up: the sums of epsilon and delta,
    named by all of them. Where the documents of several ledgers are known to differ, each document
    has the promise of its own.
    However merges are grouped and ordered, what comes of them is the same, or they are refused: a
    merged statement knows the stages of each of its artefacts.
    """
    claims = {statement.get("statement") for statement in statements}
    private = claims <= {PRIVATE, SEEDED}
    require_said(
        private or not claims & {PRIVATE, SEEDED},
        "private models are merged with others: no statement is true of both",
        private=sum(each.get("statement") in (PRIVATE, SEEDED) for each in statements),
        of=len(statements),
        remedy="merge private models only with each other",
    )
    if claims != {PRIVATE}:
        return state_seeds() if private else not_private()
    for statement in statements:
        check_statement(statement)
    statements = [renew(statement) for statement in statements]
    first = statements[0]
    for statement in statements:
        for key in _ONE_KIND:
            found, wanted = statement.get(key), first.get(key)
            rule = f"private models that are merged differ in {key}"
            remedy = "merge those that were fitted with the same privacy settings"
            require_said(found == wanted, rule, first=wanted, other=found, remedy=remedy)
    by_ledger: dict[Any, list[dict[str, Any]]] = {}
    for number, one in enumerate(each for statement in statements for each in apart(statement)):
        # What was in memory has no name: nobody knows whether two were of the same documents.
        ledger = one["ledger"]
        by_ledger.setdefault(number if IN_MEMORY in ledger.split(", ") else ledger, []).append(one)
    ledgers = sorted(map(_merge_one_ledger, by_ledger.values()), key=_place)
    missing = {name for each in ledgers for name in each.get("missing", ())}
    merged = dict(first) | {
        **with_ends([stage for each in ledgers for stage in each["stages"]]),
        "epsilon": sum_upward([each["epsilon"] for each in ledgers]),
        "delta": sum_upward([each["delta"] for each in ledgers]),
        "clip_bounds": _join_bounds(ledgers),
        "ledger": ", ".join(dict.fromkeys(each["ledger"] for each in ledgers)),
        "generation": ledgers[0].get("generation") if len(ledgers) == 1 else None,
        "missing": sorted(missing),
        "ledgers": [{key: each[key] for key in OF_LEDGER if key in each} for each in ledgers],
    }
    if not missing:
        del merged["missing"]
    merged.pop("stages_of_models", None)
    if len(ledgers) == 1:
        del merged["ledgers"]
        merged |= {key: ledgers[0][key] for key in ("stages_of_models",) if key in ledgers[0]}
    if any("seeds" in each for each in statements):
        merged["seeds"] = PUBLIC
    check_statement(merged)
    return merged


def _place(statement: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key that orders statements of several ledgers."""
    slots = [(each["first"], each["last"], each["name"]) for each in statement["stages"]]
    return statement["ledger"], slots, statement["epsilon"], statement["delta"]


def _merge_one_ledger(statements: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the joint promise of artefacts of one ledger: that of the ledger."""
    begun = [each.get("generation") for each in statements]
    known = [releases for releases in begun if releases is not None]
    missing = {name for each in statements for name in each.get("missing", ())}
    models = [model for each in statements for model in _read_models(each)]
    for one, other in combinations(models, 2):
        _check_other_slots([*(one - other)], [*(other - one)])
    stages = sorted(set.union(*models))
    merged = dict(statements[0]) | {
        **with_ends([dict(zip(_STAGE, stage, strict=True)) for stage in stages]),
        **{key: max(each[key] for each in statements) for key in ("epsilon", "delta")},
        "clip_bounds": _join_bounds(statements),
        "generation": max(known) if len(known) == len(begun) else None,
    }
    if len(models) > 1:
        places = {stage: place for place, stage in enumerate(stages)}
        merged["stages_of_models"] = sorted(sorted(places[s] for s in model) for model in models)
    return merged | ({"missing": sorted(missing)} if missing else {})


def _read_models(statement: Mapping[str, Any]) -> list[set[_Stage]]:
    """Return the stages of each artefact that a statement about one ledger was merged of."""
    stages = [tuple(each[key] for key in _STAGE) for each in statement["stages"]]
    models = statement.get("stages_of_models", [range(len(stages))])
    return [{stages[place] for place in model} for model in models]


def _check_other_slots(own: Sequence[_Stage], others: Sequence[_Stage]) -> None:
    """Refuse two artefacts of one ledger whose own stages share record slots."""
    overlap = any(a[0] <= b[1] and b[0] <= a[1] for a in own for b in others)
    require_said(
        bool(own and others) and not overlap,
        "models of one ledger that are merged hold the same record slots",
        slots=sorted(stage[:2] for stage in own)[:3],
        others=sorted(stage[:2] for stage in others)[:3],
        remedy="merge each release once",
    )


def _join_bounds(statements: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the clip bounds of all: of one name the largest first, others with a number."""
    found: dict[str, list[dict[str, Any]]] = {}
    for statement in statements:
        for name, bound in statement["clip_bounds"].items():
            known = found.setdefault(re.sub(r" \([0-9]+\)$", "", name), [])
            if bound not in known:
                known.append(bound)
    for bounds in found.values():
        bounds.sort(key=lambda bound: (-bound["l2_clip_norm"], bound["source"]))
    return {
        name if number == 1 else f"{name} ({number})": bound
        for name, bounds in sorted(found.items())
        for number, bound in enumerate(bounds, 1)
    }
