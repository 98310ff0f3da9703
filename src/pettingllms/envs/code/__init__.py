"""Code, `code-v1`."""

from pettingllms.envs.code.env import Code, CodeConfig

__all__ = ["Code", "CodeConfig"]
