"""Engines behind HTTP (extra `engines`): vLLM by token ids, servers of text, and what the two share."""
