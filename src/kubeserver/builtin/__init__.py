"""The kinds that every cluster has: what they are called, what their fields are, what differs in their behaviour.

- `fields.json` says every field of every type once: its number on the wire, its type, how lists merge, its enum.
- `table` reads it; `schemas` makes OpenAPI of it; `reading` reads an object as the kind's own types would.
- `defaults` fills in what is absent, by type.
- What a kind does not let through is in the module named after it (`pods` with `containers` and `placement`, `jobs`,
  `cluster`, `configuration`, `scheduling`, `events`, `hooks`, `access`, `devices`), with `checks` beneath them.
- `columns` is what kubectl prints.
- `kinds.RESOURCES` puts all this together, one row a kind; `admission.hooks` are the plugins that look further.

This module imports nothing, so that `apply` can ask `schemas` for the shape of metadata without a circle.
"""
