"""The daemon behind ``streamlda run``: its decisions, and the parts that act on them."""
