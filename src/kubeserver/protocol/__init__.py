"""The wire protocol of the API server: bodies, authentication, credentials, load shedding."""
