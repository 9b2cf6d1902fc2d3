"""Topics from an endless stream of documents, by online tensor decomposition."""
