"""The built-in kinds: their names, their fields, and the behaviour that differs between them.

- `builtin_types` has every field of every type, from `fields.json`, and the OpenAPI schemas.
- `decoding` decodes an object as the Go type of its kind would.
- `defaults` fills in what is absent, by type.
- Validation is in the module of the kind (`pods` with `containers` and `placement`, `jobs`, `cronjobs`, `workloads`,
  `services`, `cluster`, `configuration`, `scheduling`, `events`, `webhook_configurations`, `access`, `devices`);
  `checks` has what they share, `warnings` the warnings about valid objects.
- `columns` has the printer columns.
- `kinds.RESOURCES` combines these, one row per kind; `admission.hooks` are the built-in admission plugins.
"""
