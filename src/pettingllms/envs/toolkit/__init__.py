"""Building blocks that environments share."""
