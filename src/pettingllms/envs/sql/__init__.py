"""Questions about a database, `sql-v1`."""

from pettingllms.envs.sql.env import Sql, SqlConfig

__all__ = ["Sql", "SqlConfig"]
