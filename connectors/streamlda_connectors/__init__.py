"""Sources of documents: files, standard input, Kafka, and docstrings of installed packages."""
