"""The version of this program, in one place."""

__version__ = "0.1.0"
