"""A Kubernetes-compatible API server on SQLite, in one process. It has not heard of queueing.

The way of a request, from the door to the ground:

    server       who asks, and what the path leads to: health, a page, or a resource
    asking       a request about a resource, read: its verb, its options, its body
    verbs        the verb is permitted and carried out, and its outcome shown
    rest         the verbs themselves, the same for every kind; on their way
                   receiving    from what was sent to an object of the right kind, or a refusal
                   patching     what a patch makes of an object; `apply` who owns which field
                   admission    whoever may change or refuse it, in this process or behind `webhooks`
                   deleting     how an object goes
    objects      the present and the recent past of every object; `watch` tells what changed since
    store        revisions in a file

and back: `forms` for the shape of an answer, `answers` for its last steps, `status` for every refusal.

What kinds there are is handed in: `strategy.Resource` values for those that are built in (`builtin`),
CustomResourceDefinitions (`crds`) for all others; `registry` knows both. `limits` says what is not offered.
"""
