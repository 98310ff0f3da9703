"""Exchange with other frameworks: environments for their agents, episodes in their formats."""
