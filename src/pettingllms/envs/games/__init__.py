"""Games with two or more players."""
