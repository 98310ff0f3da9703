"""Trained policies and episodes as repositories of the Hugging Face hub, with cards."""
