"""The write path: create, update, patch and delete of any resource."""
