"""Decomposition of symmetric tensors into their eigenvectors."""
