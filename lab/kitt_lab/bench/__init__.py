"""The benchmark: cells of (method, table, split) become JSON lines; tables and figures are pure functions of those."""
