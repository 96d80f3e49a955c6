"""`python -m headstart`: the same as `headstart`."""

from headstart.cli.main import main

main()
