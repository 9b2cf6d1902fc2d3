"""Topics from an endless stream of documents, by online tensor decomposition.

Names are imported when they are first used, so that ``import streamlda`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamlda.choosing import choose_topics as choose_topics
    from streamlda.documents import DocumentBatch as DocumentBatch
    from streamlda.engine.engine import Engine as Engine
    from streamlda.engine.settings import EngineSettings as EngineSettings
    from streamlda.errors import StreamLDAError as StreamLDAError
    from streamlda.estimator import StreamLDA as StreamLDA
    from streamlda.model.topic_model import TopicModel as TopicModel
    from streamlda.model.topic_model import load as load
    from streamlda.report.documents import topics_over_time as topics_over_time
    from streamlda.report.notebook import visualize as visualize
    from streamlda.stream.source import Source as Source
    from streamlda.stream.source import open_source as open_source
    from streamlda.text.vocabulary import Vocabulary as Vocabulary

_HOMES = {
    "DocumentBatch": "documents",
    "Engine": "engine.engine",
    "EngineSettings": "engine.settings",
    "Source": "stream.source",
    "StreamLDA": "estimator",
    "StreamLDAError": "errors",
    "TopicModel": "model.topic_model",
    "Vocabulary": "text.vocabulary",
    "choose_topics": "choosing",
    "load": "model.topic_model",
    "open_source": "stream.source",
    "topics_over_time": "report.documents",
    "visualize": "report.notebook",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    value: Any
    if name == "__version__":
        from importlib.metadata import version

        value = version(__name__)
    elif name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
