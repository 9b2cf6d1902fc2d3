"""Documents in files that grow, rotate and come and go, at positions that the caller stores.

``source`` has the connector, ``watch`` knows which file is which from one scan to the next,
``scan`` lists what stands under the paths, ``copies`` tells what is new from what is a copy,
``descriptors`` reads, and ``tracked_file`` is what is known of one file and stands in a position.
"""

from streamlda_connectors.follow.source import FollowSource

__all__ = ["FollowSource"]
