"""The wire protocol of the API server: paths, queries, bodies, Status errors, authentication, load shedding."""
