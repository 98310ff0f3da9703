"""Data sets in their published formats, from files or the hub, and generated problems."""

from pettingllms.datasets.catalog import LOADERS, load
from pettingllms.datasets.overlap import check_overlap
from pettingllms.datasets.problems import Problem
from pettingllms.datasets.rows import Row, read_rows

__all__ = ["LOADERS", "Problem", "Row", "check_overlap", "load", "read_rows"]
