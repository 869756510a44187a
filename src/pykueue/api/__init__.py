"""The API types: every kind as typed values; defaults, validation, conversion, schemas. Pure: no I/O."""
