"""OpenEnv in both directions: serve an environment by its protocol, and use one that is served."""
