"""Chat formats and a maker of episodes for the tests of drift."""

import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any

import pytest

from agentgym_tok import ChatFormat, Context, Message, Refusal
from agentgym_tok.tokens import Ids, as_ids
from agentgym_tok.trace import Edge, EdgeKind, Episode, EpisodeHead, Turn, sent_digest
from agentgym_tok.types import Completion

Said = Message | Mapping[str, Any]

TOOL = {
    "type": "function",
    "function": {"name": "get", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


class Play:
    """Make an episode as a harness does: each context is bridged from the ids of the turn before.

    Args:
        chat: The chat format.
        opening: The first messages.
        tools: JSON schemas.
    """

    def __init__(self, chat: ChatFormat, opening: Sequence[Said], tools: Sequence[Mapping[str, Any]] = ()) -> None:
        self.chat = chat
        self.turns: list[Turn] = []
        self._said: Context | None = None
        self.rewrite("fresh_prompt", opening, tools, source=None)

    def say(self, turn: str | Sequence[int] | Ids, **completion: Any) -> "Play":
        """Let the policy say a text, encoded as its whole turn, or ids as they stand."""
        ids_T = self.chat.encode_turn(turn) if isinstance(turn, str) else as_ids(turn)
        self.turns.append(
            Turn(
                "play",
                len(self.turns),
                self.context,
                sent_digest(self.context.root, self.context.ids),
                Completion(ids_T, **completion),
                self._edge,
                messages=self._messages,
            )
        )
        self._said = self.context.sampled(ids_T)
        return self

    def tell(self, *messages: Said) -> "Play":
        """Append messages to the policy's turn."""
        assert self._said is not None
        self._messages = tuple(map(Message.of, messages))
        last = len(self.turns) - 1
        found = self.chat.bridge(self._said, self._messages)
        assert not isinstance(found, Refusal), found
        self.context, self._edge = found, Edge("continuation", last, last + 1)
        return self

    def rewrite(
        self,
        kind: EdgeKind,
        messages: Sequence[Said],
        tools: Sequence[Mapping[str, Any]] = (),
        source: int | None = -1,
    ) -> "Play":
        """Go on from another past."""
        self._messages = tuple(map(Message.of, messages))
        self.context = self.chat.open(self._messages, tools)
        here = len(self.turns)
        self._edge = Edge(kind, here - 1 if source == -1 else source, here)
        return self

    def episode(self, **fields: Any) -> Episode:
        """Return what was played."""
        return Episode(EpisodeHead("play", "task", created=1.0), tuple(self.turns), "done", **fields)


def user(text: str) -> Message:
    return Message("user", text)


def result(text: str, id_: str = "c1", name: str = "get") -> Message:
    return Message("tool", text, tool_call_id=id_, name=name)


class Words:
    """What tests of drift write conversations with."""

    play = Play
    user = staticmethod(user)
    result = staticmethod(result)
    tool = TOOL


@pytest.fixture(scope="session")
def words() -> type[Words]:
    return Words


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., ChatFormat]:
    """Make formats of any template on the builtin vocabulary, with more added tokens and a BOS where asked for."""
    pytest.importorskip("transformers")
    rules = json.loads((resources.files("agentgym_tok.chat") / "builtin" / "tokenizer.json").read_text("utf-8"))

    def make(template: str, added: Sequence[str] = (), *, bos: str = "", eos: str = "<|endoftext|>") -> ChatFormat:
        folder = tmp_path_factory.mktemp("tiny")
        mine = json.loads(json.dumps(rules))
        ids = max(mine["model"]["vocab"].values()) + 1
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        mine["added_tokens"] += [{"id": ids + n, "content": text, **plain} for n, text in enumerate(added)]
        if bos:
            place = next(token["id"] for token in mine["added_tokens"] if token["content"] == bos)
            pieces = [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
            special = {bos: {"id": bos, "ids": [place], "tokens": [bos]}}
            mine["post_processor"] = {
                "type": "TemplateProcessing",
                "single": pieces,
                "pair": [*pieces, {"Sequence": {"id": "B", "type_id": 0}}],
                "special_tokens": special,
            }
        (folder / "tokenizer.json").write_text(json.dumps(mine), encoding="utf-8")
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": eos, **({"bos_token": bos} if bos else {})}
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        return ChatFormat.from_pretrained(folder, template)

    return make
