"""A package without an attention."""
