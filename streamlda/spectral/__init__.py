"""Sums of documents to topics: moments, whitening, tensor decomposition."""
