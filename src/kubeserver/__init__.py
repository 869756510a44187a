"""A Kubernetes-compatible API server on SQLite, in one process. README.md has its usage and limits.

The path of a request, by package and module:

    http.server            authentication, load shedding; health, discovery, or a resource
    http.request_info      the verb, the options and the body of a request for a resource
    http.verbs             authorization of the verb, its execution, and the response
    write.rest             the verbs that write, the same for every kind; on the way
                             write.prepare        from the body to an object of the right kind, or an error
                             registry.patching    patches; `apply` for server-side apply and managedFields
                             admission            in-process hooks and webhooks that change or refuse the object
                             write.deletion       grace periods, finalizers, propagation
    storage.objects        the current and the recent state of every object; `storage.watch` streams the changes
    storage.sqlite         the journal on disk

and back: `registry.representations` for objects, metadata and Tables, `http.responses` for the last steps. Every error
is a `kubemachinery.status.StatusError`.

The kinds are arguments: `registry.strategy.Resource` values for the built-in ones (`builtin`),
CustomResourceDefinitions for all others (`registry.crd_registration`). `registry.unsupported` lists what is missing.
"""
