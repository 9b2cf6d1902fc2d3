"""A privacy ledger as lines of text: spent and left, and release by release.

Figures are rounded from their exact values away from comfort: what is spent is never shown too
small, what is left never too large.
"""

from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

#: Enough for four digits of any double, whatever the context of the caller.
_CONTEXT = Context()


def budget_table(report: Mapping[str, Any]) -> list[str]:
    """Return a report (`read_report`), with its 20 newest releases, as printable lines."""
    lines = [*_summary(report), *_describe_repeats(report["documents"])]
    others = {state: len(report[state]) for state in ("pending", "lost")}
    counted = [f"{report['generation'] - sum(others.values()):,} committed"]
    counted += [f"{n:,} {state}" for state, n in others.items() if n]
    if not report["generation"]:
        return [*lines, "releases    none yet"]
    counts = f"releases    {report['generation']:,}: {', '.join(counted)}"
    return [*lines, counts, "", *_releases(report)]


def figure(value: float | Decimal, *, upward: bool) -> str:
    """Return a number >= 0 with four digits, never below `value` if `upward`, else never above."""
    if value == 0:
        return "0"
    exact = Decimal(value)
    size = exact.adjusted()
    rounding = ROUND_CEILING if upward else ROUND_FLOOR
    rounded = exact.quantize(Decimal(1).scaleb(size - 3), rounding=rounding, context=_CONTEXT)
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
    """Return the lines on terms, spent and left."""
    budget = report["budget"]
    delta, unit = budget["delta"], budget["privacy_unit"]
    # As a decimal: e^epsilon may be beyond the range of doubles.
    factor = figure(Decimal(budget["epsilon"]).exp(_CONTEXT), upward=True)
    spender, new = {
        "document": ("the records that have spent most", "documents that were in no release"),
        "user": ("a user, all releases together", "any user, old or new documents"),
    }[unit]
    other = "a blank" if budget["neighboring_relation"] == "zero-out" else "another"
    aside = figure(report["spent"]["set_aside"], upward=True)
    left = report["left_for_new_documents"]
    return [
        f"ledger      {printable(report['ledger_id'])}",
        f"budget      epsilon {plain(budget['epsilon'])}, "
        f"delta {min(plain(delta), figure(delta, upward=True), key=len)}, per {unit}, "
        f"{budget['neighboring_relation']}, {budget['mode']}",
        f"in words    nothing published is more than e^epsilon = {factor} times as likely",
        f"            with a {unit} as with {other} in its place, but for a probability of delta",
        "not hidden  the number of records, blank ones too, in all and of each file",
        _amount("spent", report["spent"], f"by {spender}", upward=True),
        f"set aside   delta {aside:11}  for how exactly noise is drawn, and the choice of words",
        _amount("left (new)", left, f"for {new}", upward=False),
    ]


def _amount(label: str, amount: Mapping[str, float], whose: str, *, upward: bool) -> str:
    epsilon = figure(amount["epsilon"], upward=upward)
    mu_squared = figure(amount["mu_squared"], upward=upward)
    return f"{label:11} epsilon {epsilon:9}  mu^2 {mu_squared:9}  {whose}"


def _describe_repeats(documents: Mapping[str, Any] | None) -> list[str]:
    """Return the lines on records of equal texts, as far as the ledger knows them."""
    if documents is None or not documents["repeated"]:
        return []
    known = f"{documents['repeated']:,} of {documents['records']:,} records have the text of others"
    most = f"{'':11} {known}, one text {documents['most']:,}"
    whose, spent = "if equal texts are one document", documents["spent"]
    useless = f"{'repeated':11} epsilon without use, {whose}"
    return [useless if spent is None else _amount("repeated", spent, whose, upward=True), most]


def _releases(report: Mapping[str, Any]) -> list[str]:
    headings = ("no", "time (UTC)", "release", "slots", "state", "epsilon", "spent")
    rows = [headings, *map(_cells, report["snapshots"][-20:])]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    if hidden := report["generation"] - len(rows) + 1:
        lines.insert(1, f"... {hidden:,} earlier releases: see --json")
    return ["slots are numbers of records in their stream, from 0, blank ones too", "", *lines]


def _cells(shot: Mapping[str, Any]) -> list[str]:
    (stream, start, stop), *others = shot["documents"]
    slots = f"{stream} {start}..{stop - 1}" + (f" and {len(others):,} more" if others else "")
    time, name = shot["at"][:16].replace("T", " "), shot["description"] or "-"
    cells = [printable(text) for text in (str(shot["intent"]), time, name, slots, shot["state"])]
    # The end of a name, or of a range of slots, says more than its beginning.
    cells = [text if len(text) <= 40 else f"...{text[-37:]}" for text in cells]
    return cells + [figure(shot[key], upward=True) for key in ("epsilon", "epsilon_spent_after")]
