"""Collaborative stories, `story-v1`."""

from pettingllms.envs.tasks.story.env import Story, StoryConfig

__all__ = ["Story", "StoryConfig"]
