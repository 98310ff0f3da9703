"""Environments drafted by a language model: checked in a sandbox, never imported here."""

from pettingllms.envs.drafts.check import DraftReport, check_draft

__all__ = ["DraftReport", "check_draft"]
