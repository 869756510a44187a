"""What an object gets on its way in, and what is refused: decisions of `api` and `jobs`, behind two doors.

review         the decision, pure: a request and the facts it rests on in, a response out
table          which kinds are looked at, on which operations, under which names and paths
spelling       quantities as the API writes them
facts          reads what a decision has to know beside the object
limits         how large a review may be, checked before the work that this bounds
lanes          threads beside the event loop in which decisions run, and how many may be in flight
wire           AdmissionReview and ConversionReview as JSON
service        the door over HTTPS, for any API server
registration   the webhook configurations that lead an API server here
certificate    what the service proves itself with: made, kept, renewed in time
running        all of that together, for a manager beside or in a cluster
"""
