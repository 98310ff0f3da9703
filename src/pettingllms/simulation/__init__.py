"""The simulator: a run's own decisions under a simulated clock, with models of engines, learners
and environments."""
