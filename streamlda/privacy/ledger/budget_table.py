"""A privacy ledger as lines of text: what is spent, what is left, and release by release.

Figures are rounded from their exact values away from comfort: what is spent is never shown too
small, what is left never too large.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

#: Newest releases that are listed.
_SHOWN = 20

#: Decimal digits that are shown.
_DIGITS = 4

_NEIGHBORS = {
    ("document", "zero-out"): "with a document as with a blank in its place",
    ("document", "replace-one"): "with a document as with another in its place",
    ("user", "zero-out"): "with the documents of a user as with blanks in their place",
    ("user", "replace-one"): "with the documents of a user as with those of another",
}

#: Columns of text, and the most characters of each; then numbers.
_COLUMNS = {"no": 6, "time (UTC)": 16, "release": 12, "slots": 28, "state": 9, "artefact": 24}
_AMOUNTS = ("epsilon", "spent")

#: Enough for four digits of any double, whatever the context of the caller.
_CONTEXT = Context(prec=40)


def budget_table(report: Mapping[str, Any]) -> list[str]:
    """Return a report (`read_report`), with its newest releases, as printable lines for people."""
    lines = _summary(report)
    if report["snapshots"]:
        lines += ["", *_releases(report)]
    notes = [
        f"pending: release {number} is paid for and has not ended: a writer is at work, or its next"
        " start ends it"
        for number in report["pending"]
    ]
    if lost := report["lost"]:
        named = ", ".join(map(str, lost[-5:])) + (", the last of them" if len(lost) > 5 else "")
        notes.append(f"lost:    {len(lost):,} ended without an artefact ({named}), and stay paid")
    return [*lines, "", *notes] if notes else lines


def figure(value: float | Decimal, *, upward: bool) -> str:
    """Return a number >= 0 with four digits, never below `value` if `upward`, else never above."""
    if value == 0:
        return "0"
    exact = Decimal(value)
    size = exact.adjusted()
    rounded = exact.quantize(
        Decimal(1).scaleb(size - _DIGITS + 1),
        rounding=ROUND_CEILING if upward else ROUND_FLOOR,
        context=_CONTEXT,
    )
    return f"{rounded:f}" if -4 <= size < 6 else f"{rounded:.3e}"


def plain(value: float) -> str:
    """Return a number as short as it can be without rounding it."""
    return repr(float(value)).removesuffix(".0")


def printable(text: str) -> str:
    """Return text with all that a terminal might obey, or cannot show, escaped."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def _summary(report: Mapping[str, Any]) -> list[str]:
    budget, generation = report["budget"], report["generation"]
    delta = budget["delta"]
    terms = [
        f"epsilon {plain(budget['epsilon'])}",
        f"delta {min(plain(delta), figure(delta, upward=True), key=len)}",
        f"per {budget['privacy_unit']}",
        budget["neighboring_relation"],
        budget["mode"],
    ]
    if budget["horizon"] is not None:
        terms.append(f"horizon {budget['horizon']:,}")
    lines = [f"ledger      {printable(report['ledger_id'])}", f"budget      {', '.join(terms)}"]
    lines += _in_words(budget)
    spender, new = _whose(report)
    lines.append(_amount("spent", report["spent"], spender, upward=True))
    lines += _repeated(report["documents"])
    if set_aside := report["spent"]["set_aside"]:
        shown = figure(set_aside, upward=True)
        why = "for how exactly noise is drawn, and the choice of words"
        lines.append(f"{'set aside':11} delta {shown:11}  {why}")
    lines.append(_amount("left (new)", report["left_for_new_documents"], new, upward=False))
    if not generation:
        return [*lines, "releases    none yet"]
    pending, lost = len(report["pending"]), len(report["lost"])
    counted = [f"{generation - pending - lost:,} committed"]
    counted += [f"{n:,} {state}" for n, state in ((pending, "pending"), (lost, "lost")) if n]
    return [*lines, f"releases    {generation:,}: {', '.join(counted)}"]


def _in_words(budget: Mapping[str, Any]) -> list[str]:
    neighbors = _NEIGHBORS[budget["privacy_unit"], budget["neighboring_relation"]]
    # As a decimal: e^epsilon may be beyond the range of doubles.
    factor = figure(Decimal(budget["epsilon"]).exp(_CONTEXT), upward=True)
    return [
        f"in words    nothing published is more than e^epsilon = {factor} times as likely",
        f"            {neighbors}, but for a probability of delta",
        "not hidden  the number of records, blank ones too, in all and of each file",
    ]


def _whose(report: Mapping[str, Any]) -> tuple[str, str]:
    """Return whose amounts are shown: spent, and left for another release."""
    if report["budget"]["privacy_unit"] == "user":
        return "by a user, all releases together", "for any user, old or new documents"
    new, allowed = "for documents that were in no release", report["releases_left"]
    new += "" if allowed is None else f"; releases left: {allowed:,}"
    return "by the records that have spent most", new


def _amount(label: str, amount: Mapping[str, float], whose: str, *, upward: bool) -> str:
    epsilon = figure(amount["epsilon"], upward=upward)
    mu_squared = figure(amount["mu_squared"], upward=upward)
    return f"{label:11} epsilon {epsilon:9}  mu^2 {mu_squared:9}  {whose}"


def _repeated(documents: Mapping[str, Any] | None) -> list[str]:
    """Return the lines on records of equal texts, as far as the ledger knows them."""
    if documents is None or not documents["repeated"]:
        return []
    known = f"{documents['repeated']:,} of {documents['records']:,} records have the text of others"
    most = f"{'':11} {known}, one text {documents['most']:,}"
    whose, spent = "if equal texts are one document", documents["spent"]
    useless = f"{'repeated':11} epsilon without use, {whose}"
    return [useless if spent is None else _amount("repeated", spent, whose, upward=True), most]


def _releases(report: Mapping[str, Any]) -> list[str]:
    rows = [_cells(shot) for shot in report["snapshots"][-_SHOWN:]]
    headings = [*_COLUMNS, *_AMOUNTS]
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    lines = []
    for row in (headings, *rows):
        cells = zip(row, widths, headings, strict=True)
        padded = [c.rjust(w) if h in _AMOUNTS else c.ljust(w) for c, w, h in cells]
        lines.append("  ".join(padded).rstrip())
    if hidden := report["generation"] - len(rows):
        lines.insert(1, f"... {hidden:,} earlier releases: see --json")
    return ["slots are numbers of records in their stream, from 0, blank ones too", "", *lines]


def _cells(shot: Mapping[str, Any]) -> tuple[str, ...]:
    (stream, start, stop), *others = shot["documents"]
    slots = f"{stream} {start}..{stop - 1}" + (f" and {len(others):,} more" if others else "")
    at = shot["at"][:16].replace("T", " ")
    names = (str(shot["intent"]), at, shot["description"], slots, shot["state"], shot["artifact"])
    return (
        *(_cut(printable(n or "-"), w) for n, w in zip(names, _COLUMNS.values(), strict=True)),
        figure(shot["epsilon"], upward=True),
        figure(shot["epsilon_spent_after"], upward=True),
    )


def _cut(text: str, width: int) -> str:
    # The end of a name, or of a range of slots, says more than its beginning.
    return text if len(text) <= width else "..." + text[3 - width :]
