"""Programs of ours that run inside the sandbox; nothing outside imports them.

They stand here as files so that they are checked like all other code, and are sent in as text.
"""
