"""The daemon behind ``streamlda run``: what it does next, and the parts that do it."""
