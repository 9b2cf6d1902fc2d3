"""A privacy ledger as lines of text: what is spent, what is left, and release by release.

Figures are rounded from their exact values away from comfort: what is spent is never shown too
small, what is left never too large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

#: Columns of a terminal that the table keeps to, by shortening names, as far as it can.
WIDTH = 100

#: Names of streams that are listed.
_STREAMS = 20

#: No name is shortened below this.
_NARROWEST = 12

#: Decimal digits that are shown.
_DIGITS = 4

_NEIGHBORS = {
    ("document", "zero-out"): "with a document as with a blank in its place",
    ("document", "replace-one"): "with a document as with another in its place",
    ("user", "zero-out"): "with the documents of a user as with blanks in their place",
    ("user", "replace-one"): "with the documents of a user as with those of another",
}

_HEADINGS = ("no", "time (UTC)", "release", "slots", "state", "artefact", "epsilon", "spent")
_TO_THE_RIGHT = {0, 6, 7}
_NAMES = (2, 3, 5)

#: Enough for four digits of any double, whatever the context of the caller.
_CONTEXT = Context(prec=40)


def budget_table(report: Mapping[str, Any]) -> list[str]:
    """Return a report (`LedgerReader.report` or `read_report`) as lines for people.

    At most `WIDTH` characters each, unless figures alone take more; printable only. If releases
    were left out of it, a line says how many.
    """
    lines = [*_summary(report), "", *_releases(report)]
    notes = _notes(report)
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
    lines = [
        f"in words    nothing published is more than e^epsilon = {factor} times as likely",
        f"            {neighbors}, but for a probability of delta",
        "not hidden  the number of records, blank ones too, in all and of each file",
    ]
    return lines


def _whose(report: Mapping[str, Any]) -> tuple[str, str]:
    """Return whose amounts are shown: spent, and left for another release."""
    units, allowed = f"{report['budget']['privacy_unit']}s", report["releases_left"]
    if units == "users":
        return "by a user, all releases together", "for any user, old or new documents"
    spender = "by the records that have spent most"
    if allowed is None:
        return spender, f"for {units} that were in no release"
    if allowed == 0:
        return spender, f"for new {units}: the horizon is reached"
    return spender, f"for new {units}, each once; releases left: {allowed:,}"


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
    if documents["spent"] is None:
        return [f"{'repeated':11} epsilon without use, if equal texts are one document", most]
    return [
        _amount("repeated", documents["spent"], "if equal texts are one document", upward=True),
        most,
    ]


def _releases(report: Mapping[str, Any]) -> list[str]:
    shots = report["snapshots"]
    if not shots:
        return []
    streams = list(dict.fromkeys(shot["documents"][0][0] for shot in shots))
    numbers = {stream: i for i, stream in enumerate(streams, 1)}
    rows = [_cells(shot, numbers) for shot in shots]
    # Most ledgers have one price: said once.
    prices = {row[-2:] for row in rows}
    same = len(prices) == 1
    lines = _aligned([row[:-2] if same else row for row in (_HEADINGS, *rows)])
    hidden = report["generation"] - len(shots)
    if hidden:
        # Releases are numbered from 1 without gaps: the first jump is where some were left out.
        jump = next(i for i, shot in enumerate(shots, 1) if shot["intent"] != i)
        lines.insert(jump, f"... {hidden:,} releases in between are not shown")
    above = ["slots are numbers of records in their stream, from 0, blank and rejected ones too"]
    if same:
        ((alone, spent),) = prices
        above.insert(0, f"each release cost epsilon {alone}")
        if spent != alone:
            above[0] += f", and what was spent after each is {spent}"
    if len(streams) == 1:
        above += [f"stream {printable(streams[0])}"] * (streams != [""])
    else:
        shown = list(numbers.items())[:_STREAMS]
        above += [f"stream {number}: {printable(name)}" for name, number in shown]
        if len(numbers) > len(shown):
            above.append(f"... {len(numbers) - len(shown):,} further streams: see --json")
    return [*above, "", *lines]


def _cells(shot: Mapping[str, Any], numbers: Mapping[str, int]) -> tuple[str, ...]:
    (stream, start, stop), *others = shot["documents"]
    slots = f"{start}..{stop - 1}"
    if len(numbers) > 1:
        slots = f"{numbers[stream]}: {slots}"
    if others:
        slots += f" and {len(others):,} more"
    texts = (shot["at"][:16].replace("T", " "), shot["description"] or shot["cohort_id"], slots)
    return (
        str(shot["intent"]),
        *map(printable, texts),
        shot["state"],
        "-" if shot["artifact"] is None else printable(shot["artifact"]),
        figure(shot["epsilon"], upward=True),
        figure(shot["epsilon_spent_after"], upward=True),
    )


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    over = sum(widths) + 2 * (len(widths) - 1) - WIDTH
    while over > 0:
        widest = max(_NAMES, key=widths.__getitem__)
        if widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
        over -= 1
    return [
        "  ".join(
            cell.rjust(width) if i in _TO_THE_RIGHT else _cut(cell, width).ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _cut(text: str, width: int) -> str:
    # The end of a name, or of a range of slots, says more than its beginning.
    return text if len(text) <= width else "..." + text[3 - width :]


def _notes(report: Mapping[str, Any]) -> list[str]:
    lines = []
    for number in report["pending"]:
        lines.append(f"pending: release {number} is paid for and has not ended. A writer at work")
        lines.append("         ends it; if it was stopped, Ledger.recover() publishes the stored")
        lines.append("         bytes or marks the release as lost. Noise is never drawn again.")
    lost = report["lost"]
    if lost:
        named = ", ".join(map(str, lost[-5:])) + (", the last of them" if len(lost) > 5 else "")
        lines.append(f"lost:    {len(lost):,} ended without an artefact ({named}).")
        lines.append(
            "         What they cost stays spent: prefix sums continue with new documents."
            if report["budget"]["mode"] == "prefix"
            else "         What they cost stays spent: continue with new documents."
        )
    return lines
