"""KITT: names, fits and explains the Gaussian-process kernel of a table."""
