"""Ray: the processes of a run, started, found again, and started anew when they die."""
