"""HTTP requests to responses: routing, verbs, lists, watches, discovery documents and health."""
