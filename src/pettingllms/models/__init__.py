"""Model folders: finding, downloading, and creating tiny models for tests."""

from pettingllms.models.download import get_model
from pettingllms.models.folder import find_model
from pettingllms.models.tiny import make_tiny
from pettingllms.models.tiny_vision import make_tiny_vision

__all__ = ["find_model", "get_model", "make_tiny", "make_tiny_vision"]
