"""The resources that are served, built-in and custom, and how objects of each are read, checked and shown."""
