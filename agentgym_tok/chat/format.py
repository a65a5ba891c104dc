"""The chat format: one tokenizer and one template, and everything that turns messages into ids and back."""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Self

import tokenizers

from agentgym_tok.chat.bridge import Bridge, Refusal
from agentgym_tok.chat.dialects.tags import Tag
from agentgym_tok.chat.inline import INLINE, fold
from agentgym_tok.chat.parse import TurnReader
from agentgym_tok.chat.render import render
from agentgym_tok.chat.template import ChatTemplate
from agentgym_tok.chat.tokenizer import Tokenizer, replace_surrogates
from agentgym_tok.chat.write import written_turns
from agentgym_tok.errors import ChatError, FingerprintMismatch
from agentgym_tok.tokens import Context, Ids, Root, Span, as_ids
from agentgym_tok.types import AssistantMessage, Message

__all__ = ["ChatFormat"]


class ChatFormat:
    """Turn messages into ids and sampled ids into messages, never ids into ids.

    Make one with `builtin` or `from_pretrained`; equal calls return the same object, and it pickles by reference.

    Attributes:
        reference: How to make it again: `"builtin"`, or the folder or id.
        vocab_size: Every id is below it.
        stop_ids: Ids that end a turn, the usual one first: what the template writes behind an assistant's text, then
            the model's own, the end of a call, and openers that a model stops on.
        control_ids: Ids of added tokens, which untrusted text never yields.
        fingerprint: sha256 of tokenizer, template, template kwargs and the model's own stop tokens.
        bos_id: The id of what the template calls `bos_token`; None without one.
        dialect: How reasoning and tool calls are written, as `parse` reads them.
        delimiters: The texts that structure a turn in this dialect.
        reasoning_pairs: Those of them that open and close reasoning.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        *,
        reference: tuple[str, ...],
        stop_ids: Sequence[int] = (),
        dialect: str | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._reference = reference
        self._bridge = Bridge(template, tokenizer, stop_ids)
        self.reference = reference[0]
        self.vocab_size = tokenizer.vocab_size
        self.control_ids = tokenizer.control_ids
        settings = json.dumps(template.variables, sort_keys=True, default=str)
        # The model's own stops decide what `bridge` adds behind a turn, so they are part of what the format is.
        parts = f"{tokenizer.digest}\n{template.source}\n{settings}\n{sorted(set(stop_ids))}"
        self.fingerprint = hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()
        ends, call_end = self._bridge.ends, self._bridge.call_end
        # Not what closes a turn only where a message follows: gpt-oss ends its analysis with that, and goes on.
        found = [*ends.closers[:1], *stop_ids, *([] if call_end is None else [call_end]), *ends.openers]
        self.stop_ids: tuple[int, ...] = tuple(dict.fromkeys(found))
        self._root = Root(self.fingerprint, self.vocab_size)
        self._reader = TurnReader(tokenizer, template, self.stop_ids, dialect)
        bos = template.variables.get("bos_token")
        self.bos_id = tokenizer.token_id(bos) if isinstance(bos, str) else None
        self.dialect = self._reader.dialect.name
        self.delimiters = self._reader.dialect.delimiters
        self.reasoning_pairs = self._reader.dialect.reasoning

    @classmethod
    def builtin(cls) -> "ChatFormat":
        """Return the format that ships with the library: 4,096 byte-level BPE entries and a ChatML template."""
        return _builtin()

    @classmethod
    def from_pretrained(
        cls,
        path_or_id: str | Path,
        chat_template: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        dialect: str | None = None,
    ) -> "ChatFormat":
        """Return the format of a model's tokenizer (extra `hf`).

        Args:
            path_or_id: Folder with `tokenizer.json` and `tokenizer_config.json`, or a name on the hub.
            chat_template: Another template than the model's own.
            template_kwargs: What the template reads beside messages, such as `{"enable_thinking": False}`.
            dialect: How the model writes calls, where it is not as its template does: `"hermes"`, `"qwen_xml"`, ...
                `"renderers"` has turns read by the package of that name (extra `renderers`), which must know the model
                by its name on the hub; for a folder, name it: `"renderers:Qwen/Qwen3-8B"`.

        Raises:
            MissingExtra: transformers is not installed, or renderers where that is asked for.
            ChatError: There is no fast tokenizer or no template there, the kwargs are no JSON, or renderers does not
                know the model.
            UnknownName: No dialect has this name.
        """
        # A folder's name must mean the same in a worker that runs elsewhere.
        name = str(Path(path_or_id).absolute()) if Path(path_or_id).is_dir() else str(path_or_id)
        try:
            kwargs = json.dumps(dict(template_kwargs or {}), sort_keys=True)
        except (TypeError, ValueError) as error:
            raise ChatError("template kwargs must be JSON", where="template_kwargs", got=str(error)) from error
        return _from_pretrained(name, chat_template, kwargs, f"renderers:{name}" if dialect == "renderers" else dialect)

    @property
    def recipe(self) -> dict[str, Any]:
        """What makes the format again, as JSON-able values; `from_recipe` takes it."""
        if len(self._reference) == 1:
            return {"path_or_id": self.reference}
        path_or_id, template, kwargs, dialect = self._reference
        given = {"chat_template": template, "template_kwargs": json.loads(kwargs), "dialect": dialect}
        return {"path_or_id": path_or_id, **{name: value for name, value in given.items() if value}}

    @classmethod
    def from_recipe(cls, recipe: Mapping[str, Any]) -> "ChatFormat":
        """Make a format again of its `recipe`.

        Raises:
            MissingExtra: transformers or renderers is not installed.
            ChatError: What it was made of is not here any more.
        """
        return cls.builtin() if dict(recipe) == {"path_or_id": "builtin"} else cls.from_pretrained(**recipe)

    def __repr__(self) -> str:
        shown = f"vocab_size={self.vocab_size}, dialect={self.dialect!r}, fingerprint={self.fingerprint[:12]!r}"
        return f"ChatFormat({self.reference!r}, {shown})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._reference, self.fingerprint)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # immutable, and shared by all environments of a process

    # ---- text

    def encode(self, text: str) -> Ids:
        """Encode untrusted text on its own; control tokens spelled in it stay text.

        Raises:
            ChatError: The text holds lone surrogates (`open` and `bridge` replace and count them).
        """
        return self._tokenizer.encode_untrusted(_no_surrogates(text))

    def encode_turn(self, turn: str | Message) -> Ids:
        """Encode what an expert says as a turn, stop token included: a demonstration, not a sample.

        Args:
            turn: A whole turn as text; the delimiters that `parse` reads (`<think>`, `<tool_call>`) become control
                tokens, others such as stop tokens never do. Or an assistant's message, as `write` encodes it. Or a
                message of the role `inline`: text in a turn that goes on, so that no stop token follows.

        Raises:
            ChatError: The text holds lone surrogates, or the template does not write such a message.
        """
        if isinstance(turn, Message) and turn.role != INLINE:
            return self.write(turn)
        text = turn if isinstance(turn, str) else turn.content
        parts_T = self._tokenizer.encode_untrusted(_no_surrogates(text), self.delimiters)
        return as_ids([*parts_T.tolist(), *self.stop_ids[:1]]) if isinstance(turn, str) else parts_T

    def write(self, message: Message, tools: Sequence[Mapping[str, Any]] | None = None) -> Ids:
        """Encode an assistant's message as the template writes its turn: calls, reasoning and what ends it.

        The proof is that `parse` reads the same message from the ids. A few templates end no turn that calls
        (DeepSeek-V3's); such a turn has no stop token.

        Args:
            message: Of the role `assistant`; control tokens spelled in it stay text.
            tools: JSON schemas, where some dialects take the types of arguments from.

        Raises:
            ChatError: The template refuses the message, or does not write it so that it is read back.
        """
        if message.role != "assistant":
            raise ChatError("only an assistant's message is a turn", where="write", got=f"role {message.role}")
        for ids_T in written_turns(
            self._template, self._tokenizer, message, self.stop_ids, self._reader.dialect.reasoning
        ):
            if _said(self.parse(ids_T, tools)) == _said(message):
                return ids_T
        raise ChatError(
            "what the template writes of a message is not read back as that message",
            where=f"{self.reference}, dialect {self.dialect}",
            got=f"content {message.content[:40]!r}, calls of {[call.name for call in message.tool_calls]}",
            fix="say it in text, or use a template that writes calls and reasoning",
        )

    def decode(self, ids_T: Ids) -> str:
        """Return the text of ids for people, parsers and worlds; never encode it again as a policy's turn.

        Raises:
            InvalidIds: An id is outside the vocabulary.
        """
        return self._tokenizer.decode(ids_T)

    def token_text(self, index: int) -> str:
        """Return one id's text, for people.

        Raises:
            InvalidIds: The id is outside the vocabulary.
        """
        return self._tokenizer.decode([index])

    def token_bytes(self, ids_T: Ids) -> list[bytes]:
        """Return the bytes of each id, control tokens spelled out; one id may hold a part of a character only.

        Raises:
            InvalidIds: An id is outside the vocabulary.
        """
        table = self._tokenizer.token_bytes
        return [table[index] for index in as_ids(ids_T, vocab_size=self.vocab_size).tolist()]

    # ---- as text pipelines do it, for comparing with them

    def apply_chat_template(
        self,
        messages: Sequence[Message | Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = False,
        **kwargs: Any,
    ) -> str:
        """Return a conversation as the template writes it, with nothing protected: no prompt for a policy.

        What a message says may spell control tokens here, as in transformers' method of this name; lone surrogates
        become U+FFFD.

        Args:
            messages: The whole conversation.
            tools: JSON schemas of the tools.
            add_generation_prompt: End in the prompt for the next assistant turn.
            kwargs: What the template reads beside messages, over what the format was made with.

        Raises:
            ChatError: The template refuses the conversation.
        """
        given = [message.to_dict() for message in fold(_of(messages))]
        text = self._template.render(given, tools, generation=add_generation_prompt, **kwargs)
        return replace_surrogates(text)[0]

    def tokenize(self, text: str, *, add_special_tokens: bool = False) -> Ids:
        """Encode text as the tokenizer does when it is called: control tokens spelled in it are parsed.

        For text that a policy reads, `open`, `bridge` and `encode` are the way.

        Args:
            text: Any text.
            add_special_tokens: Add what the tokenizer puts around a text: a second BOS where the template wrote one.

        Raises:
            ChatError: The text holds lone surrogates.
        """
        return self._tokenizer.tokenize(_no_surrogates(text), add_special_tokens=add_special_tokens)

    def writes_calls(self, *, with_text: bool) -> bool:
        """Tell whether the template writes an assistant's tool calls, without or with a text before them."""
        return self._template.writes_calls(with_text=with_text)

    # ---- conversations

    def open(
        self, messages: Sequence[Message | Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> Context:
        """Start a conversation: one prompt span that ends in the generation prompt.

        Args:
            messages: The conversation so far.
            tools: JSON schemas of the tools.

        Raises:
            ChatError: The template refuses the messages, or would leave out an assistant's tool calls.
        """
        given = fold(_of(messages))
        for message in given:
            if message.tool_calls and not self.writes_calls(with_text=bool(message.content)):
                raise ChatError(
                    "the template leaves out tool calls",
                    where="assistant message",
                    got=f"calls of {', '.join(call.name for call in message.tool_calls)}",
                    fix="use a template that writes calls, with a text before them if there is one",
                )
        root = self._root if not tools else Root(self.fingerprint, self.vocab_size, tuple(tools))
        rendering = render(self._template, self._tokenizer, given, root.tools, generation=True)
        return Context(root, Span(rendering.encode(self._tokenizer), "prompt", replaced=rendering.replaced))

    def bridge(self, context: Context, messages: Sequence[Message | Mapping[str, Any]]) -> Context | Refusal:
        """Append what the template puts between a turn and the next one; the ids before stay as they are.

        Args:
            context: A context that ends in a policy's turn, as sampled.
            messages: What came since: user, tool or system messages; or messages of the role `inline`, which go on
                inside the turn.

        Returns:
            The context that ends in the next generation prompt, or a `Refusal` with its reason.

        Raises:
            FingerprintMismatch: The context belongs to another format.
        """
        self.check(context)
        return self._bridge(context, _of(messages))

    def parse(
        self, ids_T: Ids, tools: Sequence[Mapping[str, Any]] | None = None, *, opened: bool | None = None
    ) -> AssistantMessage:
        """Read a turn from its ids: content, reasoning, tool calls with token spans and status.

        Args:
            ids_T: int32 [T], with or without a stop token; any ids of the vocabulary give an answer.
            tools: JSON schemas; a call of another name is `unknown_tool`, and some dialects take types from them.
            opened: Whether the prompt ended inside reasoning, where that is known of this one. False makes a closer
                without an opener text; None takes what stands before it for reasoning.

        Raises:
            InvalidIds: An id is outside the vocabulary.
        """
        return self._reader.read(as_ids(ids_T, vocab_size=self.vocab_size), tools, opened=opened)

    def tags(self, ids_T: Ids, names: Sequence[str]) -> tuple[Tag, ...]:
        """Return the blocks of a turn that stand between plain tags such as `<search>` and `</search>`.

        Args:
            ids_T: int32 [T], with or without a stop token; any ids of the vocabulary give an answer.
            names: The tags' names, without brackets. Naming `think` too keeps out what is only thought of.

        Raises:
            InvalidIds: An id is outside the vocabulary.
        """
        return self._reader.tags(as_ids(ids_T, vocab_size=self.vocab_size), names)

    def check(self, context: Context) -> None:
        """Refuse a context of another tokenizer, template or setting.

        Raises:
            FingerprintMismatch: It belongs to another format.
        """
        if context.root.fingerprint != self.fingerprint:
            raise FingerprintMismatch(
                "the ids belong to another chat format",
                where=f"context of {len(context)} ids",
                got=context.root.fingerprint[:16],
                expected=f"{self.fingerprint[:16]} ({self.reference})",
                fix="use the format that made them; ids are never encoded again",
            )


def _of(messages: Sequence[Message | Mapping[str, Any]]) -> list[Message]:
    given = [Message.of(message) for message in messages]
    if any(message.images for message in given):
        raise ChatError("a text format has no ids for images", where="messages", got="a message that shows images")
    return given


def _said(message: Message | AssistantMessage) -> tuple[Any, ...]:
    """Return what a turn says, in a form in which equal turns are equal."""
    whole = message.reasoning_closed if isinstance(message, AssistantMessage) else True
    calls = [(call.name, json.dumps(call.arguments, sort_keys=True), call.status) for call in message.tool_calls]
    return message.content.strip(), (message.reasoning or "").strip(), calls, whole


def _no_surrogates(text: str) -> str:
    if replace_surrogates(text)[1]:
        fix = "open and bridge replace and count them"
        raise ChatError("the text holds lone surrogates", where="text", got=repr(text[:40]), fix=fix)
    return text


@functools.cache
def _builtin() -> ChatFormat:
    folder = resources.files("agentgym_tok.chat") / "builtin"
    tokenizer = Tokenizer(tokenizers.Tokenizer.from_str((folder / "tokenizer.json").read_text(encoding="utf-8")))
    template = ChatTemplate((folder / "template.jinja").read_text(encoding="utf-8"), {})
    end = tokenizer.token_id("<|endoftext|>")
    return ChatFormat(tokenizer, template, reference=("builtin",), stop_ids=[] if end is None else [end])


@functools.lru_cache(maxsize=16)
def _from_pretrained(path_or_id: str, chat_template: str | None, kwargs: str, dialect: str | None) -> ChatFormat:
    from agentgym_tok.chat.pretrained import load_pretrained  # noqa: PLC0415  # extra `hf`

    tokenizer, template, stop_ids = load_pretrained(path_or_id, chat_template, json.loads(kwargs))
    reference = (path_or_id, chat_template or "", kwargs, dialect or "")
    return ChatFormat(tokenizer, template, reference=reference, stop_ids=stop_ids, dialect=dialect)


def _restore(reference: tuple[str, ...], fingerprint: str) -> ChatFormat:
    if reference == ("builtin",):
        chat = _builtin()
    else:
        path_or_id, chat_template, kwargs, dialect = reference
        chat = _from_pretrained(path_or_id, chat_template or None, kwargs, dialect or None)
    if chat.fingerprint != fingerprint:
        raise FingerprintMismatch(
            "the chat format changed on its way to this process",
            where=reference[0],
            got=chat.fingerprint[:16],
            expected=fingerprint[:16],
            fix="install the same library version, and the same tokenizer files, on every node",
        )
    return chat
