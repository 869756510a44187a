"""The types of the built-in kinds as data, one line per field, and their OpenAPI schemas."""
