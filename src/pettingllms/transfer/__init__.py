"""Streams of weights from a learner to its inference engines, through a process group."""
