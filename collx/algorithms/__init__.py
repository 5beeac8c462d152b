"""How: one module for each family of collectives, one short generator for each algorithm."""
