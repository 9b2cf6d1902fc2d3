"""Figures and theorems of the papers run again: `python -m bench papers NAME`."""
