"""Evaluation suites: benches for one player, summarized in a table, a figure and a results file.

A suite is a small TOML file. The built-in ones are in this folder; users can write their own.
"""
