"""The serving side of the Kubernetes API protocol that the API server and aggregated APIs have in common.

paths            request paths and what they name
query            numbers and booleans in a query
negotiation      the representation that an Accept header asks for
discovery        discovery documents, aggregated and per group
openapi          the parts of OpenAPI v3 documents
views            read-only documents about objects that are computed per request and never stored
aggregated_api   views served behind an API server, as an APIService registers them
"""
