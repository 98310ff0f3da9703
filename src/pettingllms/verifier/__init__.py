"""A model that says how likely an answer is right: made, measured and served."""
