"""Admission: in-process plugins and webhooks that change or refuse an object before it is stored."""
