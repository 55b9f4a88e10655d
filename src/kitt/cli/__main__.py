"""`python -m kitt.cli` is the command `kitt`."""

from kitt.cli.main import main

if __name__ == "__main__":
    main()
