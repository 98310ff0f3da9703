"""Our programs that run inside the sandbox; nothing outside imports them.

They are files so that linters and type checkers cover them, and are sent to the sandbox as text.
"""
