"""What stands between an agent that somebody else wrote and the engine, and records every token."""

__all__: list[str] = []
