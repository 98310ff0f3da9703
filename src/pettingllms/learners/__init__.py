"""Learners: from turns with advantages to the next version of a policy."""
