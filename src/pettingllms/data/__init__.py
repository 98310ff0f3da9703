"""Problems in their published formats, from files or from a hub, and problems made on the spot."""

from pettingllms.data.overlap import check_overlap
from pettingllms.data.problems import Problem
from pettingllms.data.rows import Row, read_rows
from pettingllms.data.sets import LOADERS, load

__all__ = ["LOADERS", "Problem", "Row", "check_overlap", "load", "read_rows"]
