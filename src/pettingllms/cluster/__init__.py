"""Ray: starts the processes of a run, places them, and restarts engines that die."""
