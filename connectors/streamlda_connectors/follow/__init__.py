"""Documents in files that grow, rotate and come and go, at positions that the caller stores.

``source`` has the connector, ``watch`` knows which file is which from one scan to the next,
``scan`` lists what stands under the paths, ``descriptors`` reads, and ``tracked_file`` is what is
known of one file, stands in a position, and tells a new file from a copy.
"""

from streamlda_connectors.follow.source import FollowSource

__all__ = ["FollowSource"]
