"""Verifiers: models that estimate the probability that an answer is correct."""
