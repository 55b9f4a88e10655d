"""`python -m kitt.app.cli` is the command `kitt`."""

from kitt.app.cli.main import main

if __name__ == "__main__":
    main()
