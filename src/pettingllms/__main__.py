"""`python -m pettingllms`: the same as `pettingllms`."""

from pettingllms.cli.main import main

main()
