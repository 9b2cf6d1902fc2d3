"""The privacy statement of every model artefact: the promise, its unit, and its means.

A statement is a mapping of plain JSON values. One that promises nothing has the key ``statement``
alone. One that says ``"private"`` has all of these, and may have more:

``statement``
    ``"private"``, ``"not private"`` or ``"not private (seeded)"``.
``epsilon``, ``delta``
    The promise to one privacy unit, about all that was and will be released under the ledger.
``privacy_unit``, ``documents_per_user``
    ``"document"`` and None; or ``"user"`` and the most documents of a user in a stage.
``neighboring_relation``
    ``"zero-out"`` (a document or a blank in its slot; ``"add-remove"`` in statements of 0.1.0) or
    ``"replace-one"``.
``mode``, ``horizon``
    ``"window"`` and None; or ``"prefix"`` and the number of snapshots that it was calibrated for.
``mechanism``
    One sentence.
``noise``
    ``"secure"``: keyed by the operating system. Seeded noise makes nothing private.
``noise_multiplier``
    The smallest of the stages: standard deviation of the noise over the sensitivity.
``clip_bounds``
    For each block of sums its ``l2_clip_norm`` and the ``source`` of it (`CLIP_SOURCES`).
``vocabulary``
    Where the columns come from: one of `VOCABULARIES`.
``cohort``
    ``first`` and ``last`` record slot of the documents, blanks between them included.
``stages``
    A list: ``name``, ``first`` and ``last`` slot, and ``noise_multiplier`` of each release.
``ledger``, ``generation``
    Random name of the ledger, or ``"in memory"``, never a path; and how many releases it had begun,
    None where there is no one ledger, missing in statements of 0.1.0.
``excluded``
    A list of what the promise does not cover.

One that was merged of models of one ledger has ``stages_of_models``: of each the places of its
releases in ``stages``. One of several ledgers has ``ledgers``: what each promises and has released.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from streamlda.errors import InvalidSettingError, between, failure, require
from streamlda.guarantee.mechanism import check_relation
from streamlda.privacy.costs import cost
from streamlda.privacy.events import CLIP_SOURCES, GaussianRelease
from streamlda.privacy.ledger.budget_table import figure, plain, printable
from streamlda.privacy.ledger.terms import LedgerTerms, Loss

PRIVATE, NOT_PRIVATE, SEEDED = "private", "not private", "not private (seeded)"

_REMEDY = f"correct it, or say {NOT_PRIVATE!r}"

#: What nobody's documents decided: words, seeds.
PUBLIC = "public"

#: The first four may be private: they are public, or were paid for.
VOCABULARIES = (
    PUBLIC,
    "hashed",
    "private selection",
    "columns of a matrix: public",
    "learned, not private",
)

#: What `excluded` says of record slots, whose number is published.
SLOTS_ARE_PUBLIC = "the number of records"

EXCLUDED = (
    SLOTS_ARE_PUBLIC,
    "timing and other side channels",
    "memory and raw state of the process",
    "the owner of the documents",
)

MECHANISMS = {
    "window": "Integer Gaussian noise on clipped sums, one joint release for each stage.",
    "prefix": "Integer Gaussian noise on clipped sums, all prefix sums as one matrix mechanism.",
}

#: What `ledgers` says of each, and what a statement about one of them has not.
OF_LEDGER = (
    *("ledger", "generation", "epsilon", "delta", "stages", "clip_bounds", "missing"),
    "stages_of_models",
)

#: Name of a ledger that is kept in no file.
IN_MEMORY = "in memory"


@dataclass(frozen=True, slots=True)
class ReleasedStage:
    """Record slots, `last` included, whose documents entered one joint Gaussian release."""

    name: str
    first: int
    last: int
    noise_multiplier: float  # Standard deviation / l2_sensitivity, for one privacy unit.


def not_private() -> dict[str, Any]:
    """Return the statement of an artefact that promises nothing."""
    return {"statement": NOT_PRIVATE}


def state_seeds() -> dict[str, Any]:
    """Return the statement of a private run with `SeededNoise`, which anyone can draw again."""
    return {"statement": SEEDED}


def private_statement(
    *,
    epsilon: float,
    delta: float,
    stages: Sequence[ReleasedStage],
    clip_bounds: Mapping[str, tuple[float, str]],
    vocabulary: str,
    secure: bool,
    ledger: str | None,
    generation: int | None = None,
    privacy_unit: str = "document",
    documents_per_user: int | None = None,
    neighboring_relation: str = "zero-out",
    mode: str = "window",
    horizon: int | None = None,
    public_model: str | None = None,
    seeds: bool = False,
    missing: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the statement of a private artefact, or refuse to make it.

    `delta` is that with what a private selection of words took; `stages` are all releases that the
    artefact was made from, in the order of their slots; `clip_bounds` maps a block to its
    l2_clip_norm and source; `ledger` and `generation` are None for a budget in memory; `missing`
    names the stages of an incomplete window that were not released.
    """
    statement = {
        "statement": PRIVATE,
        "epsilon": epsilon,
        "delta": delta,
        "privacy_unit": privacy_unit,
        "documents_per_user": documents_per_user,
        "neighboring_relation": check_relation(neighboring_relation),
        "mode": mode,
        "horizon": horizon,
        "mechanism": MECHANISMS.get(mode, ""),
        "noise": "secure" if secure else "seeded",
        "clip_bounds": {
            name: {"l2_clip_norm": norm, "source": source}
            for name, (norm, source) in clip_bounds.items()
        },
        "vocabulary": vocabulary,
        **with_ends([asdict(stage) for stage in stages]),
        "ledger": IN_MEMORY if ledger is None else ledger,
        "generation": generation,
        "excluded": list(EXCLUDED),
    }
    if public_model is not None:
        statement["public_model"] = public_model
    if seeds:
        statement["seeds"] = PUBLIC
    if missing:
        statement["missing"] = list(missing)
    check_statement(statement)
    return statement


def renew(statement: Mapping[str, Any]) -> dict[str, Any]:
    """Return a private statement in the terms of today: those of 0.1.0 say less of records."""
    renewed = dict(statement)
    if renewed["neighboring_relation"] == "add-remove":
        renewed["neighboring_relation"] = check_relation("add-remove")
        renewed["excluded"] = [SLOTS_ARE_PUBLIC, *renewed["excluded"]]
    return renewed


def apart(statement: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a statement about each ledger of one that was merged."""
    if "ledgers" not in statement:
        return [dict(statement)]
    merged = ("ledgers", "missing", "stages_of_models")
    common = {key: value for key, value in statement.items() if key not in merged}
    return [common | part | with_ends(part["stages"]) for part in statement["ledgers"]]


def with_ends(stages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the stages, and all values that follow from them."""
    return {
        "stages": [dict(stage) for stage in stages],
        "noise_multiplier": min((stage["noise_multiplier"] for stage in stages), default=None),
        "cohort": {
            "first": min((stage["first"] for stage in stages), default=None),
            "last": max((stage["last"] for stage in stages), default=None),
        },
    }


def sum_upward(values: Sequence[float]) -> float:
    """Return the sum, rounded so that it is not less."""
    found = math.fsum(values)
    return found if found >= sum(map(Fraction, values)) else math.nextafter(found, math.inf)


def check_statement(statement: Mapping[str, Any]) -> None:
    """Refuse a statement that claims privacy and does not bear it out."""
    if statement.get("statement") == PRIVATE:
        _lines_if_true(statement)


def _lines_if_true(statement: Mapping[str, Any]) -> list[str]:
    """Return the lines of a private statement that holds, or refuse it."""
    try:
        _check(statement)
        return [_line(label, text) for label, text in _label_lines(renew(statement))]
    except InvalidSettingError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        rule = "a private statement is not as its documentation says"
        reason = f"{type(error).__name__}: {error}"[:80]
        raise failure(rule, reason=reason, remedy=_REMEDY) from error


def _check(statement: Mapping[str, Any]) -> None:
    """Refuse claims that do not hold; what is missing or of another type raises as it does."""
    ledger, begun = statement["ledger"], statement.get("generation")
    bounds = statement["clip_bounds"]
    users, horizon = statement["documents_per_user"], statement["horizon"]
    of_users = statement["privacy_unit"] == "user"
    holds = {
        "noise": statement["noise"] == "secure",
        "vocabulary": statement["vocabulary"] in VOCABULARIES[:4],
        # Paths stay on the machine.
        "ledger": isinstance(ledger, str) and ledger and not {"/", "\\"} & {*ledger},
        "public_model": statement.get("public_model", "none").isalnum(),
        "generation": begun is None or _whole(begun),
        "clip_bounds": all(bound["source"] in CLIP_SOURCES for bound in bounds.values()) and bounds,
        "seeds": statement.get("seeds", PUBLIC) == PUBLIC,
        "excluded": isinstance(statement["excluded"], list | tuple) and statement["excluded"],
        "missing": isinstance(statement.get("missing", ()), list | tuple),
        "documents_per_user": _whole(users) if of_users else users is None,
        "horizon": horizon is None or (statement["mode"] == "prefix" and _whole(horizon)),
    }
    for key, is_valid in holds.items():
        shown: dict[str, Any] = {key: "a path" if key == "ledger" else statement.get(key)}
        rule = f"the {key} of a private statement is not as its documentation says"
        require_said(bool(is_valid), rule, **shown)
    between(0.0, 1e6, epsilon=statement["epsilon"])
    between(0.0, 1.0, delta=statement["delta"])
    for bound in bounds.values():
        between(1e-100, 1e100, l2_clip_norm=bound["l2_clip_norm"])
    names = ("epsilon", "delta", "privacy_unit", "neighboring_relation", "mode")
    _check_stages(statement, LedgerTerms(**{name: statement[name] for name in names}))
    if "stages_of_models" in statement:
        models = statement["stages_of_models"]
        places = {*range(len(statement["stages"]))}
        rule = "models are not listed by the places of their stages, each stage in one or more"
        whole = len(models) > 1 and all(models) and {place for m in models for place in m} == places
        require_said(whole, rule, stages_of_models=models)
    if "ledgers" in statement:
        _check_ledgers(statement)


def statement_lines(statement: Mapping[str, Any]) -> list[str]:
    """Return a statement as a few short lines, labels in the first 12 columns.

    Never raises: what does not bear out its claim is shown as not private, with the reason.
    """
    claim = statement.get("statement")
    if claim != PRIVATE:
        # "none" was written before there were private models.
        known = claim in (NOT_PRIVATE, SEEDED)
        lines = [_line("privacy", str(claim) if known else NOT_PRIVATE)]
        if known or claim in (None, "none"):
            return lines
        return [*lines, _line("", f"the statement is not known: {str(claim)[:60]!r}")]
    try:
        return _lines_if_true(statement)
    except InvalidSettingError as error:
        return [_line("privacy", NOT_PRIVATE), _line("", f"the statement is refused: {error}")]


def _check_stages(statement: Mapping[str, Any], terms: LedgerTerms) -> None:
    """Add up the cost of the stages, and compare it with the promise."""
    stages = statement["stages"]
    ordered = all(_whole(stage["last"], stage["first"], 2**63 - 2) for stage in stages)
    ordered = ordered and all(_whole(stage["first"], 0) for stage in stages)
    ordered = ordered and all(isinstance(stage["name"], str) for stage in stages)
    rule = "stages are no list of name, first, last and noise_multiplier, in order"
    require_said(len(stages) > 0 and ordered, rule, stages=stages)
    paid = [
        (
            range(stage["first"], stage["last"] + 1),
            Fraction(cost(GaussianRelease(stage["noise_multiplier"])).mu_squared),
        )
        for stage in stages
    ]
    rule = f"noise does not bear out epsilon={terms.epsilon} delta={terms.delta}"
    # The most that stages cost one slot, at which one of them begins, or a user.
    spent = max(
        sum(price for other, price in paid if not terms.parallel or slots.start in other)
        for slots, _ in paid
    )
    covered = terms.covers(Loss(Fraction(spent), Fraction(0)))
    require_said(covered, rule, mu_squared=float(spent))
    for key, wanted in with_ends(stages).items():
        found = statement[key]
        same = key == "stages" or found == wanted
        require_said(same, f"the {key} of the stages is {wanted}", **{key: found})


def _check_ledgers(statement: Mapping[str, Any]) -> None:
    """Check the values of each ledger, and that they add up to the whole."""
    parts = statement["ledgers"]
    rule = "several ledgers are not listed with what each promises and has released"
    whole = len(parts) > 1 and all(set(part) <= {*OF_LEDGER} and part["stages"] for part in parts)
    require_said(whole, rule, ledgers=parts)
    ledgers = apart(statement)
    for each in ledgers:
        check_statement(each)
    found = [stage for each in ledgers for stage in each["stages"]]
    rule = "what several ledgers promise does not add up to the whole"
    require_said(found == list(statement["stages"]), rule, stages=len(found))
    for key in ("epsilon", "delta"):
        total = sum_upward([each[key] for each in ledgers])
        values: dict[str, Any] = {key: total}
        require_said(total == statement[key], rule, **values)


def _label_lines(statement: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return label and text of each line of a checked statement."""
    epsilon, delta = plain(statement["epsilon"]), plain(statement["delta"])
    unit, users = statement["privacy_unit"], statement["documents_per_user"]
    capped = f", at most {users:,} documents in a stage" if unit == "user" else ""
    stages = statement["stages"]
    ends = "{first}..{last}".format_map(statement["cohort"])
    bounds = [
        f"{name} {figure(bound['l2_clip_norm'], upward=True)} ({bound['source']})"
        for name, bound in statement["clip_bounds"].items()
    ]
    shown = [
        f"{stage['name']} {stage['first']}..{stage['last']} "
        f"(noise {figure(stage['noise_multiplier'], upward=False)})"
        for stage in stages[:3]
    ]
    if len(stages) > 3:
        shown.append(f"{len(stages) - 3:,} more")
    scope = "disjoint windows" if statement["mode"] == "window" else "all since the start"
    if statement["horizon"] is not None:
        scope += f", {statement['horizon']:,} snapshots at most"
    begun, missing = statement.get("public_model"), statement.get("missing", ())
    return [
        ("privacy", f"private: epsilon {epsilon}, delta {delta}"),
        ("unit", f"{unit}, {statement['neighboring_relation']}{capped}"),
        ("mode", f"{statement['mode']}: {scope}"),
        ("mechanism", statement["mechanism"]),
        ("noise", f"{figure(statement['noise_multiplier'], upward=False)} x sensitivity, or more"),
        ("clip bounds", ", ".join(bounds)),
        ("words", statement["vocabulary"]),
        *([("begun with", f"public model {begun}")] if begun else []),
        *([("seeds", "public words")] if "seeds" in statement else []),
        ("stages", f"{len(stages):,} in record slots {ends}: {', '.join(shown)}"),
        *([("incomplete", f"without {', '.join(missing)}")] if missing else []),
        ("ledger", statement["ledger"]),
        ("not covered", "; ".join(statement["excluded"])),
    ]


def _line(label: str, text: str) -> str:
    return f"{label:12}{printable(text)}"


def _whole(value: Any, least: int = 1, most: float = math.inf) -> bool:
    return type(value) is int and least <= value <= most


def require_said(holds: bool, rule: str, *, remedy: str = _REMEDY, **values: Any) -> None:
    """Refuse values of a statement; long values are cut in the message."""
    # A value from a damaged file may be of any length.
    shown: dict[str, Any] = {
        name: value if len(repr(value)) <= 80 else repr(value)[:80]
        for name, value in values.items()
    }
    require(holds, rule, **shown, remedy=remedy)
