"""Garbage collection: dependents follow their owners, namespaced objects their namespace, Events expire."""
