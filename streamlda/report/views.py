"""The sections of a report that compare: map, spectrum, doubts, change from model to model."""

from __future__ import annotations

from collections.abc import Sequence

from streamlda.report.charts import log_chart, topic_map
from streamlda.report.facts import Facts
from streamlda.report.markup import Markup, element, joined
from streamlda.report.overview import REASONS
from streamlda.report.parts import count, details, link, percent, plate, table
from streamlda.spectral.topics import SUPPORT_ANGLE

#: Most topics whose every distance is listed.
MATRIX_TOPICS = 40


#: Where there is no number.
NOTHING = "\N{EN DASH}"


def controls(facts: Facts) -> Markup:
    """Return what orders, searches and words the cards; the script shows it."""
    orders = [("prevalence", "most prevalent first"), ("id", "by number")]
    if len(facts.models) > 1:
        orders.insert(1, ("moved", "most moved first"))
    kinds = [("probable", "most probable"), ("distinctive", "most distinctive")]
    return element(
        "div",
        _select("order", "Order", orders),
        _select("kind", "Words", kinds),
        element(
            "label",
            "Find ",
            element("input", id="find", type="search", autocomplete="off", placeholder="a word"),
        ),
        element("p", id="found", class_="quiet", role="status"),
        id="controls",
        class_="controls",
        hidden=True,
    )


def _select(id_: str, label: str, options: Sequence[tuple[str, str]]) -> Markup:
    listed = (element("option", text, value=value) for value, text in options)
    return element("label", f"{label} ", element("select", *listed, id=id_))


def the_map(facts: Facts) -> Markup:
    """Return the map of the topics with what it leaves out, and tables that say the same."""
    told = []
    for topic in facts.topics:
        words = " ".join(word.text for word in topic.probable[:5])
        near = "".join(f"; nearest topic {i}, {far:.2f} away" for i, far in topic.nearest[:1])
        told.append(f"Topic {topic.id}, {percent(topic.prevalence)}: {words}{near}")
    ids = [topic.id for topic in facts.topics]
    shares = [topic.prevalence for topic in facts.topics]
    note = (
        "Topics that share words lie near each other; the area of a circle is the prevalence. A "
        f"flat map shows {percent(facts.kept)} of how topics differ, and circles make room for "
        "each other and stay inside: the tables below have the distances themselves (0: the same "
        "words, 1: none in common)."
    )
    panel = element(
        "div",
        element("h3", "Choose a topic", id="told-title"),
        element("p", "Its words are shown here.", id="told-words", dir="auto"),
        element("p", id="told-near", class_="quiet"),
        id="told",
        class_="told",
        hidden=True,
    )
    drawn = topic_map(facts.places, shares, ids, told)
    neighbours = table(
        "Each topic with its nearest.",
        ("Topic", "Prevalence", "Words", "Nearest"),
        [
            (
                link(topic.id),
                percent(topic.prevalence),
                element("span", " ".join(w.text for w in topic.probable[:5]), dir="auto"),
                joined([f"{i} ({far:.2f})" for i, far in topic.nearest], ", "),
            )
            for topic in facts.topics
        ],
        "Neighbours of topics",
    )
    parts = [
        element("p", note, class_="quiet lead"),
        element("div", drawn, panel, class_="beside"),
        details("The map as a table", neighbours),
    ]
    if 1 < len(ids) <= MATRIX_TOPICS:
        rows = [
            (str(id_), *(f"{far:.2f}" for far in row))
            for id_, row in zip(ids, facts.distances.tolist(), strict=True)
        ]
        matrix = table("", ("Topic", *map(str, ids)), rows, "Distances between topics")
        parts.append(details("All distances between topics", matrix))
    return joined(parts)


def spectrum(facts: Facts) -> Markup:
    """Return the eigenvalues with their noise, and the number of topics that they suggest."""
    found = facts.suggestion
    least = "at least " if found.basis == "all" else ""
    verdict = "How many topics there should be is not known"
    if found.n_components is not None:
        verdict = f"Suggested: {least}{count(found.n_components, 'topic', 'topics')}"
    told = element("strong", f"{verdict}.")
    return joined(
        [
            element("p", told, " ", found.reason, id="verdict", class_="lead"),
            element("div", _pairs(facts), _clarity(facts), class_="plates"),
        ]
    )


def _pairs(facts: Facts) -> Markup:
    """Return the eigenvalues of the word pairs, drawn and as a table; nothing if unknown."""
    if facts.spectrum is None:
        return Markup("")
    eigenvalues, noise = facts.spectrum
    found, K, n = facts.suggestion, facts.newest.n_components, len(eigenvalues)
    # The largest may be 0 or below in noise alone.
    largest = max(float(eigenvalues[0]), 1e-300)
    values = (eigenvalues / largest).tolist()
    marks = [(K, f"{K} in the model")] if n > K else []
    if found.basis in ("drop", "floor") and found.n_components not in (None, K):
        assert found.n_components is not None
        marks.append((found.n_components, f"{found.n_components} suggested"))
    k = n if noise is None else found.n_components or 0
    told = "" if noise is None else f", {k} of them not noise"
    drawn = log_chart(
        values,
        None if noise is None else (noise / largest).tolist(),
        names=[str(i + 1) for i in range(n)],
        label=f"Eigenvalues of the word pairs: {count(n, 'direction', 'directions')}{told}",
        axis="direction of the word pairs, by eigenvalue",
        counted=[i < k for i in range(n)],
        marks=marks,
    )
    levels = [None] * n if noise is None else noise.tolist()
    rows = [
        (str(i + 1), f"{value:.3g}", NOTHING if level is None else f"{level:.3g}")
        for i, (value, level) in enumerate(zip(eigenvalues.tolist(), levels, strict=True))
    ]
    columns = ("Direction", "Eigenvalue", "Noise floor")
    listed = table("", columns, rows, "Eigenvalues of word pairs")
    caption = "Eigenvalues of word pairs over the largest"
    caption += "." if noise is None else ", and what noise alone reaches (shaded)."
    if found.basis == "hidden":
        caption += " Directions below the noise of privacy were not released; the others are at 1."
    return element(
        "div",
        plate(drawn, caption),
        details("These eigenvalues as a table", listed),
    )


def _clarity(facts: Facts) -> Markup:
    """Return how clearly each topic stands out, drawn and as a table; nothing if unknown."""
    ratios = [topic.clarity for topic in facts.topics if topic.clarity is not None]
    if len(ratios) < len(facts.topics):
        return Markup("")
    ids = [topic.id for topic in facts.topics]
    least = 1 / SUPPORT_ANGLE
    clear = sum(ratio > least for ratio in ratios)
    drawn = log_chart(
        ratios,
        [least] * len(ratios),
        names=[str(id_) for id_ in ids],
        label=f"Clarity of each topic: {clear} of {len(ratios)} are above {least:g}",
        axis="topic, by prevalence",
        counted=[ratio > least for ratio in ratios],
    )
    rows = [(link(id_), f"{ratio:.2f}") for id_, ratio in zip(ids, ratios, strict=True)]
    listed = table("", ("Topic", "Eigenvalue / noise"), rows, "Clarity of topics")
    caption = (
        "How clearly each topic stands out of word triples: its eigenvalue over the noise in "
        f"it. Below {least:g} (shaded) a topic may be chance."
    )
    return element("div", plate(drawn, caption), details("Clarity of topics as a table", listed))


def doubts(facts: Facts) -> Markup:
    """Return the topics that repeat others or say little, with what to do."""
    parts = []
    pairs = {
        (min(t.id, other), max(t.id, other)): far for t in facts.topics for other, far in t.repeats
    }
    if pairs:
        listed = [
            element("li", link(i), " and ", link(j), f": {far:.2f} apart")
            for (i, j), far in sorted(pairs.items(), key=lambda item: item[1])
        ]
        text = (
            "Near-duplicates: they say nearly the same. Read them as one topic, or fit with fewer."
        )
        parts += [element("p", text), element("ul", *listed, class_="chips")]
    for reason, (short, long) in REASONS.items():
        topics = [topic for topic in facts.topics if reason in topic.reasons]
        if topics:
            listed = [element("li", link(topic.id)) for topic in topics]
            parts.append(element("p", element("strong", short.capitalize()), f": {long}"))
            parts.append(element("ul", *listed, class_="chips"))
    if not parts:
        parts.append(element("p", "No topic repeats another, and none looks like chance."))
    return joined(parts)


def changes(facts: Facts) -> Markup:
    """Return what is different from model to model; for two models or more."""
    stayed = sorted(
        (topic for topic in facts.topics if topic.moved is not None),
        key=lambda topic: -(topic.moved or 0.0),
    )
    fresh = [topic for topic in facts.topics if topic.is_new]
    mean = sum(topic.moved or 0.0 for topic in stayed) / max(1, len(stayed))
    text = (
        f"Since {facts.labels[-2]}, {count(len(stayed), 'topic', 'topics')} went on and moved by "
        f"{mean:.2f} on average (0: the same words, 1: none in common), {len(fresh)} came and "
        f"{len(facts.gone)} went. A topic keeps its number from model to model."
    )
    parts = [element("p", text, class_="lead")]
    if facts.common_share is not None:
        parts.append(
            element(
                "p",
                "The models do not know the same words. They are compared by the words in common, "
                f"which are at least {percent(facts.common_share)} of the tokens of each; all "
                "others add to the distance.",
                class_="quiet lead",
            )
        )
    chips = [element("li", link(t.id), f" moved {t.moved:.2f}") for t in stayed[:3]]
    chips += [element("li", link(t.id), " is new") for t in fresh]
    chips += [
        element("li", f"Topic {id_} is gone: ", element("span", " ".join(words), dir="auto"))
        for id_, words in facts.gone.items()
    ]
    parts.append(element("ul", *chips, class_="chips"))
    histories = {topic.id: topic.history for topic in facts.topics} | facts.past
    most = max(share for row in histories.values() for share in row if share is not None)
    rows = []
    for id_ in sorted(histories):
        is_shown = id_ not in facts.past
        cells = [_heat(share, most) for share in histories[id_]]
        rows.append((link(id_) if is_shown else Markup(f"{id_} (gone)"), *cells))
    shares = table(
        "Share of all tokens, the oldest model on the left.",
        ("Topic", *facts.labels),
        rows,
        "Prevalence of topics over models",
    )
    return joined([*parts, details("Prevalence as a table", shares)])


def _heat(share: float | None, most: float) -> Markup:
    if share is None:
        return Markup(NOTHING)
    level = min(4, int(5 * (share / most) ** 0.5))
    return element("span", percent(share), class_=f"heat heat-{level}")
