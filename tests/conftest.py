"""Settings that all tests share."""

from hypothesis import settings

settings.register_profile("default", max_examples=40, deadline=None, derandomize=True)
settings.load_profile("default")
