"""Experiments: a folder that says what is asked, run whole, from the model to table and figure."""
