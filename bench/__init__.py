"""Benchmarks of streamlda: what each scenario asks is in README.md; start with `-m bench list`."""
