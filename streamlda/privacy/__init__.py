"""Differential privacy: what a release costs, what is left, and the noise that pays for it."""
