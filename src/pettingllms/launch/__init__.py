"""Files that run a configuration elsewhere: Slurm, KubeRay, SkyPilot and Docker."""
