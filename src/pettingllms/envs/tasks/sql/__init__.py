"""Text-to-SQL questions, `sql-v1`."""

from pettingllms.envs.tasks.sql.env import Sql, SqlConfig

__all__ = ["Sql", "SqlConfig"]
