"""From files to numbers: reading, encoding of columns, standardisation."""
