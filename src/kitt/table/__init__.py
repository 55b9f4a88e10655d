"""A file becomes numbers: reading, columns as numbers, the one standardisation."""
