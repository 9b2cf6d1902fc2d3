"""Figures and theorems of the papers run again: `streamlda reproduce NAME`."""
