"""Counts episodes into a file of statistics until it is killed, and says how many it has counted."""

import itertools
import sys

from agentgym_tok.skills import SkillQuery, Ucb, load_bank

rule = Ucb(load_bank(sys.argv[1]), file=sys.argv[2])
for number in itertools.count(1):
    rule.update(rule.retrieve(SkillQuery("", ("e",))), number % 3)
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()
