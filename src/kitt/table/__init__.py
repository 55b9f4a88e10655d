"""A file becomes numbers: reading, encoding of columns, standardisation."""
