"""The kinds that every cluster has: what they are called, what their fields are, what differs in their behaviour.

- `fields.json` says every field of every type once: its number on the wire, its type, how lists merge, its enum.
- `table` reads it; `schemas` makes OpenAPI of it; `reading` reads an object as the kind's own types would.
- `kinds.RESOURCES` is the list of `strategy.Resource` that the server starts with; the rules of a kind (defaults,
  validation, what a client may not change) are in the module named after it.
- `reading.malformed(resource.kind, ...)` says why a body cannot be read as this kind at all (400).

This module imports nothing, so that `apply` can ask `schemas` for the shape of metadata without a circle.
"""
