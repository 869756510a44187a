"""Admission and conversion webhooks: decisions of `api` and `jobs`, served over HTTPS or called in the process.

review                 the decision, pure: a request and its facts in, a response out
table                  which kinds are reviewed, on which operations, under which names and paths
canonical_quantities   quantities as the API writes them
facts                  reads what a decision needs in addition to the object
limits                 the maximum size of a review, checked before it is decoded
workers                threads beside the event loop in which decisions run, and how many may be in flight
review_codec           AdmissionReview and ConversionReview as JSON
review_handler         the HTTPS handler, for any API server
registration           the webhook configurations, and the conversion of CRDs
certificate            the serving certificate: issued, stored, renewed in time
webhook_server         all of these together, for a manager outside of or in a cluster
"""
