"""The kinds of models by name."""

from __future__ import annotations

from streamlda.checks import one_of
from streamlda.private.settings import PrivateSettings
from streamlda.sites.kinds.kind import Kind
from streamlda.sites.kinds.mixture import MixtureKind
from streamlda.sites.kinds.rows import RowSettings
from streamlda.sites.kinds.subspace import SubspaceKind
from streamlda.sites.kinds.topics import SINGLE, TopicsKind

AgreedSettings = PrivateSettings | RowSettings

#: The kind of a config that says none.
LDA = "lda"

SINGLE_TOPIC = "single-topic"

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        TopicsKind(LDA),
        SubspaceKind(),
        TopicsKind(SINGLE_TOPIC, SINGLE),
        MixtureKind(),
    )
}


def kind_named(name: str) -> Kind:
    """Return the kind of a name, or refuse it."""
    one_of(tuple(KINDS), kind=name)
    return KINDS[name]
