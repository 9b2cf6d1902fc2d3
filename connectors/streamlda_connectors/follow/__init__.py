"""Source of files that grow and rotate, at positions that the caller stores."""

from streamlda_connectors.follow.source import FollowSource

__all__ = ["FollowSource"]
