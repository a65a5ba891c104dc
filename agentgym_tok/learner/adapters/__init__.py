"""Rows for other trainers, each in its own objects, token for token.

Every module has functions that need nothing (`*_fields`, plain lists and arrays) and functions that make the trainer's
own objects, which import it when they are called. A row whose trained tokens have no log-probabilities is refused.
"""

from agentgym_tok.learner.adapters.segments import Segment, segment, trajectories

__all__ = ["Segment", "segment", "trajectories"]
