"""Code, `code-v1`."""

from pettingllms.envs.tasks.code.env import Code, CodeConfig

__all__ = ["Code", "CodeConfig"]
