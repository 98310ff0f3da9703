"""Reports with citations, `knowledge-v1`."""

from pettingllms.envs.tasks.knowledge.env import Knowledge, KnowledgeConfig

__all__ = ["Knowledge", "KnowledgeConfig"]
