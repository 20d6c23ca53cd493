"""Tools with verl's shape: sandbox, search, image zoom."""
