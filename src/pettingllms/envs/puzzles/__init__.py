"""Puzzles with exact solutions."""
