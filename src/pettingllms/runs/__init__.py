"""What a run leaves behind: its folder, its checkpoints, its numbers and who is told them."""
