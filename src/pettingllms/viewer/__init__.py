"""The viewer: learning curves and episodes in a web page, served locally or exported as one file.

It only reads a run's files. It starts no engine or environment and imports no user code that the
config names. Text written by models is shown as plain text.
"""
