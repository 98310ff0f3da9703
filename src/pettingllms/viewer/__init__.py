"""The viewer: a run's curves and episodes on a page, served on loopback or written as one file.

It reads what a run wrote and runs nothing: no engine, no environment, and nothing that a run's
configuration names. What models wrote is shown as text.
"""
