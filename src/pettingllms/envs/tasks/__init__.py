"""Tasks with graded answers."""
