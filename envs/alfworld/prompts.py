"""Our words for the prompts of ALFWorld."""

from agentgym_tok.envs.prompting import Words

__all__ = ["ALFWORLD_WORDS"]

_RULES = """You solve household tasks in a text world. Every turn you give one command, and the world answers.
Commands:
look
inventory
go to PLACE
open PLACE
close PLACE
take THING from PLACE
move THING to PLACE
use THING
clean THING with PLACE
heat THING with PLACE
cool THING with PLACE
slice THING with THING
examine PLACE or THING
Names come with their number, as in: drawer 2. A command that is impossible has no effect."""

ALFWORLD_WORDS = Words(
    system=f"{_RULES}\nEnd each turn with <action>COMMAND</action>.",
    role="You act in a text world of household tasks, by one command a turn.",
    answer="""Reason about the next command between <think> and </think>.
Then choose exactly one of the commands that you can give now, and write it between <action> and </action>.""",
    hidden=frozenset({"help"}),
    react=_RULES,
)
