"""The kinds that every cluster has, as rows: what they are called, what their fields are, what differs in their behaviour.

    for row in KINDS: row.group, row.version, row.kind, row.plural, row.namespaced, ...
    row.schema()             -> OpenAPI v3 structural schema of the kind, inlined (for pruning and unknown fields)
    openapi_components(gv)   -> components/schemas with $ref, for /openapi/v3
    shape(row)               -> apply.Shape of the kind
    decode(row, tree)        -> tree as the kind's own types would read and write it: empty optional fields dropped, zero
                                values of mandatory ones added; Problems (400) for a value of the wrong type
    row.default(tree)        -> None; fills in the API defaults, in place
    row.validate(tree, old, subresource)     -> list[FieldError]
    row.prepare_create(tree, context) / row.prepare_update(tree, old, subresource) -> None; in place
    row.columns, row.cells(tree, now)        -> what kubectl prints
    row.selectable(tree)     -> field selector values
"""
