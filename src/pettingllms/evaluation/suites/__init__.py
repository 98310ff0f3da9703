"""Suites: benches played by one subject, for one table, one figure and one file of numbers.

A suite is a small TOML file. Those that ship lie beside this file; anybody can write another.
"""
