"""Retrievers behind one protocol, the corpora that they search, and a server for both."""
