"""Training loops: RL, SFT and DPO, with evaluation and export."""
