"""Multi-hop search questions, `search-v1`."""

from pettingllms.envs.tasks.search.env import Search, SearchConfig

__all__ = ["Search", "SearchConfig"]
