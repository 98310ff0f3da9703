"""Grading mathematics outside of our processes."""




