"""Differential privacy: the cost of releases, the rest of the budget, and the noise."""
