"""Training loops and what belongs to them: train, SFT, DPO, evaluation, export."""
