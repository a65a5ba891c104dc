"""A simulated harness rewrites conversations, and a slow judge says which of its moves would have given the request."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat
from agentgym_tok.tokens import Context
from agentgym_tok.trace import Turn, sent_digest
from agentgym_tok.trace.edges.classify import FoundEdge, classify
from agentgym_tok.trace.edges.lineage import Lineage
from agentgym_tok.types import Completion, Message

Messages = tuple[Message, ...]
Truth = tuple[str, int | None]

LOOK = ({"name": "look", "parameters": {"at": "string"}},)
BOTH = (*LOOK, {"name": "task", "parameters": {"prompt": "string"}})
SYSTEMS = (Message("system", "You keep a house in order."), Message("system", "You keep a house in order. Hurry."))
HELPER, TITLE = Message("system", "You help."), Message("system", "Give this a title.")
SUMMARISE = Message("user", "Summarise what you did.")
SUMMARY = "This happened before: "
CLEARED = "-"
FOLLOWS = {"continuation", "rerender", "compaction", "strip_reasoning", "system_swap", "tools_change"}


def bare(messages: Sequence[Message]) -> Messages:
    return tuple(replace(message, reasoning=None) for message in messages)


@dataclass(frozen=True)
class State:
    """What a harness remembers of a turn: what it asked with, and the answer as it quotes it."""

    index: int
    system: Messages
    tools: tuple[Any, ...]
    body: Messages
    answer: Message
    kind: str
    used: bool

    @property
    def full(self) -> Messages:
        return (*self.body, self.answer)

    def arguments(self) -> list[str]:
        return [str(word) for call in self.answer.tool_calls for word in (call.arguments or {}).values()]


@dataclass
class Harness:
    chat: ChatFormat
    random: Random
    unique: bool
    lineage: Lineage = field(init=False)
    turns: list[Turn] = field(default_factory=list)
    states: dict[int, State] = field(default_factory=dict)
    followed: set[int] = field(default_factory=set)
    continued: set[int] = field(default_factory=set)
    told: int = 0

    def __post_init__(self) -> None:
        self.lineage = Lineage(self.chat.parse)

    def chance(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def pick(self, *values: Any) -> Any:
        return self.random.choice(values)

    def text(self) -> str:
        if not self.unique:
            return self.pick("Go.", "A mug.", "There stands a red mug upon the wooden desk.")
        self.told += 1
        return f"{self.pick('There is', 'I do not see', 'Look for')} number {self.told} of all the many red mugs."

    # ---- what the engine answers

    def ids(self, tools: tuple[Any, ...]) -> list[int]:
        encode = self.chat.encode_turn
        text, kind = self.text(), self.pick("text", "letters", "nothing")
        letters = [index for letter in text for index in self.chat.encode(letter).tolist()]
        content = {"text": encode(text)[:-1].tolist(), "letters": letters, "nothing": []}[kind]
        think = encode(f"<think>\n{self.text()}\n</think>\n\n")[:-1].tolist() if self.chance(40) else []
        name, key = self.pick(*(("look", "at"), ("task", "prompt"))[: len(tools) or 2])
        called = f'<tool_call>\n{{"name": "{name}", "arguments": {{"{key}": "{self.text()}"}}}}\n</tool_call>'
        lead = "\n" if content else ""
        call = encode(lead + called)[:-1].tolist() if self.chance(50) or (self.unique and not content) else []
        stop = [] if self.chance(10) else encode("").tolist()
        return [*think, *content, *call, *stop]

    # ---- what the harness asks

    def ask(self, state: State, context: Context | None = None) -> None:
        """Send a request; index, answer and kind of the state are still to come."""
        conversation = (*state.system, *state.body)
        context = context or self.chat.open(conversation, state.tools)
        found = classify(self.lineage, context, conversation)
        self.judge(found, context, state)
        ids = np.array(self.ids(state.tools), np.int32)
        edge, used = found.edge, not (found.attempt or self.chance(10))
        source = self.states.get(-1 if edge.source is None else edge.source)
        news = len(source.system) + len(source.full) if source and edge.kind == "continuation" else 0
        turn = Turn(
            "e",
            edge.target,
            context,
            sent_digest(context.root, context.ids),
            Completion(ids),
            edge,
            conversation[news:],
            self.chat.decode(ids),
            attempt=found.attempt,
            used=used,
        )
        self.lineage.add(turn)
        self.turns.append(turn)
        if edge.source not in (None, edge.target) and edge.kind in FOLLOWS:
            self.followed.add(edge.source)
            self.continued |= {edge.source} if edge.kind == "continuation" else set()
        known = self.states.get(edge.target)
        if known is None or used or not known.used:
            answer = self.chat.parse(ids).message()
            answer = replace(answer, tool_calls=tuple(replace(call, tokens=(0, 0)) for call in answer.tool_calls))
            self.states[edge.target] = replace(state, index=edge.target, answer=answer, kind=edge.kind, used=used)

    def move(self) -> None:
        state = self.pick(*list(self.states.values())[-3:]) if self.states and self.chance(96) else None
        kind = self.pick("plain", "plain", "plain", "again", "window", "summary", "clear", "call", "title", "summarise")
        first = Message("user", self.text())
        asked = State(-1, SYSTEMS[:1], BOTH, (first,), Message("assistant", ""), "", used=True)
        if state is None:
            self.ask(asked)
        elif kind == "again":
            self.ask(state, self.step(state.index).context)
        elif kind == "call" and state.arguments():
            body = (Message("user", state.arguments()[0]),)
            self.ask(replace(asked, system=(HELPER,), tools=LOOK, body=body))
        elif kind == "title" and state.body[0].content:
            self.ask(replace(asked, system=(TITLE,), tools=(), body=(replace(state.body[0], role="user"),)))
        elif kind == "summarise":
            self.ask(replace(state, body=(*state.full, SUMMARISE)))
        else:
            self.rewrite(state, kind)

    def rewrite(self, state: State, kind: str) -> None:
        """Go on with a conversation, more or less as it was."""
        news = (Message(self.pick("tool", "user"), self.text()),)
        newest = self.states[max(self.states)].answer.content
        if self.chance(15) and newest:
            news = (Message("tool", newest),)
        system = self.pick(*((one,) for one in SYSTEMS), ()) if self.chance(15) else state.system
        tools = self.pick(LOOK, BOTH) if self.chance(15) else state.tools
        past = state.full
        answers = [place for place, message in enumerate(past) if message.role == "assistant"]
        if kind == "window" and len(answers) > 1:
            place = self.pick(*answers[1:])
            past = self.pick((*past[:1], *past[place:]), past[place - 1 :])
        if kind == "summary" and len(past) > 5 and len(state.answer.content) > 30:
            past = (past[0], Message("user", SUMMARY + state.answer.content), *self.pick((), past[-3:-1]))
            news = ()
        if kind == "clear":
            past = tuple(replace(one, content=CLEARED) if one.role == "tool" else one for one in past)
        if self.chance(30):
            past = bare(past)
        context = None
        if (system, tools, past) == (state.system, state.tools, state.full) and self.chance(70):
            turn = self.step(state.index)
            bridged = self.chat.bridge(turn.context.sampled(turn.completion.ids_T), news)
            context = bridged if isinstance(bridged, Context) else None
        self.ask(replace(state, system=system, tools=tools, body=(*past, *news)), context)

    # ---- what may have happened

    def judge(self, found: FoundEdge, context: Context, asked: State) -> None:
        edge = found.edge
        truths = set(self.by_ids(context, asked)) or set(self.by_messages(context, asked)) or {("unknown", None)}
        said = (edge.kind, edge.source) if ("unknown", None) not in truths else (edge.kind, None)
        if self.unique and len(truths) == 1:
            # What was kept of a conversation that had lost its beginning before may be kept of the whole one as well.
            assert truths == {said} or "under another system message" in edge.reason, (truths, found)
            assert not found.alternatives
        elif found.alternatives and edge.kind != "unknown":
            assert edge.source is None or edge.kind == "continuation"
            assert truths & {(one.kind, one.source) for one in found.alternatives}
        else:
            assert said in truths or edge.kind == "unknown", (truths, found)
        if edge.source is None or edge.kind in ("continuation", "retry"):
            assert edge.place is None
        else:
            assert edge.place == leaves(ids_of(self.step(edge.source)), context.ids.tolist())

    def by_ids(self, context: Context, asked: State) -> Iterator[Truth]:
        ids = context.ids.tolist()
        same = [turn for turn in self.turns if turn.context.digest == context.digest]
        for turn in same[-1:]:
            yield "retry", turn.index
            if turn.edge.kind == "fresh_prompt" and turn.index:
                yield "fresh_prompt", turn.index
        yield from (("subagent_call", index) for index in self.callers(asked) if same and not self.unique)
        if same:
            return
        begun = []
        for turn in map(self.step, self.states):
            own, empty = ids_of(turn), not len(turn.completion.ids_T)
            if own == ids[: len(own)] and self.is_next(self.states[turn.index], asked, empty=empty):
                begun.append((len(own), turn.index))
        yield from (("continuation", index) for length, index in begun if length == max(begun)[0])

    @staticmethod
    def is_next(state: State, asked: State, *, empty: bool) -> bool:
        """Tell whether a request may hold nothing but news behind a turn."""
        answers = [sum(message.role == "assistant" for message in messages) for messages in (state.full, asked.body)]
        spoke = not empty or asked.body[len(state.body)] == Message("assistant", "")
        return spoke and answers[0] == answers[1]

    def callers(self, asked: State) -> list[int]:
        return [state.index for state in self.states.values() if asked.body[0].content in state.arguments()]

    def by_messages(self, context: Context, asked: State) -> Iterator[Truth]:
        told: list[tuple[bool, bool, str, int]] = []
        for state in self.states.values():
            other = (state.system, state.tools) != (asked.system, asked.tools)
            for past, kind, source in self.moves(state, asked):
                kept, new = asked.body[: len(past)], asked.body[len(past) :]
                same = all(later in (one, *bare([one])) for one, later in zip(past, kept, strict=False))
                if len(kept) == len(past) and same and all(message.role != "assistant" for message in new):
                    told.append((kind != "", other, kind or self.kept(state, context, asked), source))
        # A conversation that was rewritten once and goes on was not rewritten again.
        kept = [other for rewritten, other, _, _ in told if not rewritten]
        for rewritten, other, kind, source in told:
            if not rewritten or not any(before <= other for before in kept):
                yield kind, source
        if not self.states:
            yield "fresh_prompt", None
        if any(message.role == "assistant" for message in asked.body):
            return
        yield from (("subagent_call", index) for index in self.callers(asked))
        if not asked.tools:
            texts = [message.content.removeprefix(SUMMARY) for message in asked.body]
            told = [s for s in self.states.values() if s.tools and any(one.content in texts for one in s.full)]
            yield from (("auxiliary", state.index) for state in told[-1:])
        alike = [
            s for s in self.states.values() if (s.system, s.tools) == (asked.system, asked.tools) and len(s.body) == 1
        ]
        if alike and len(asked.body) == 1 and alike[-1].kind == "fresh_prompt" and alike[-1].index not in self.followed:
            yield "fresh_prompt", alike[-1].index

    def moves(self, state: State, asked: State) -> Iterator[tuple[Messages, str, int]]:
        """Yield every past that the harness's moves make of a turn's conversation, the kind and the source."""
        full, index = state.full, state.index
        yield full, "", index
        answered = any(message.role == "assistant" for message in state.body)
        if answered and len(asked.body) == len(state.body):
            yield state.body, "", index
        cleared = tuple(replace(one, content=CLEARED) if one.role == "tool" else one for one in full)
        if cleared != full:
            yield cleared, "compaction", index
        for first in range(len(full)):
            for end in range(first + 1, len(full)):
                if first or state.system == asked.system:
                    yield (*full[:first], *full[end:]), "compaction", index
        for place, message in enumerate(asked.body):
            for writer in self.states.values() if message.role == "user" else ():
                if message.content in (writer.answer.content, SUMMARY + writer.answer.content):
                    yield from self.summaries(state, asked, place, writer.index)

    def summaries(self, state: State, asked: State, place: int, writer: int) -> Iterator[tuple[Messages, str, int]]:
        """Yield the pasts in which a turn's answer stands for what is gone."""
        full, message = state.full, asked.body[place]
        source = state.index if writer in self.continued else writer
        for past in (full, state.body):
            for last in range(1, len(past) - place):
                yield (*past[:place], message, *past[-last:]), "compaction", source
        if state.system == asked.system and len(state.body) > place + 1 and writer not in self.continued:
            yield (*full[:place], message), "compaction", writer

    def kept(self, state: State, context: Context, asked: State) -> str:
        """Name the kind of an edge that keeps every message."""
        if state.system != asked.system:
            return "system_swap"
        if state.tools != asked.tools:
            return "tools_change"
        ids = context.ids.tolist()
        source = ids_of(self.step(state.index))
        place = leaves(source, ids)
        for turn in self.turns:
            start, answer = len(turn.context), turn.completion.ids_T.tolist()
            texts = [self.chat.token_text(index) for index in answer]
            if start == place and ids_of(turn) == source[: start + len(answer)] and "</think>" in texts:
                close = texts.index("</think>") + 1
                while close < len(answer) and not texts[close].strip():
                    close += 1
                rest = answer[close:]
                if ids[start : start + len(rest)] == rest:
                    return "strip_reasoning"
        return "rerender"

    def step(self, index: int) -> Turn:
        attempts = [turn for turn in self.turns if turn.index == index]
        return next((turn for turn in attempts if turn.used), attempts[-1])


def ids_of(turn: Turn) -> list[int]:
    return [*turn.context.ids.tolist(), *turn.completion.ids_T.tolist()]


def leaves(source: list[int], ids: list[int]) -> int | None:
    pairs = zip(source, ids, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), None)


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.integers(1, 14), st.booleans())
def test_a_harness_is_found_out_and_where_moves_look_alike_no_other_one_is_named(
    builtin: ChatFormat, seed: int, moves: int, unique: bool
) -> None:
    harness = Harness(builtin, Random(seed), unique)
    for _ in range(moves):
        harness.move()


def test_the_simulated_harness_makes_every_move(builtin: ChatFormat) -> None:
    kinds: Counter[str] = Counter()
    for seed in range(40):
        harness = Harness(builtin, Random(seed), unique=True)
        for _ in range(10):
            harness.move()
        kinds.update(turn.edge.kind for turn in harness.turns)
    assert set(kinds) == {*FOLLOWS, "fresh_prompt", "retry", "subagent_call", "auxiliary", "unknown"}
    assert kinds["unknown"] < kinds.total() / 8
