"""The words: every kind of the public API as typed values, and what absent, wrong or old fields mean. Pure."""
