"""Questions about a ledger that is split over readers, `ledger-v1`."""

from pettingllms.envs.tasks.ledger.env import Ledger, LedgerConfig

__all__ = ["Ledger", "LedgerConfig"]
