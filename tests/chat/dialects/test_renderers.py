"""The package `renderers` behind `parse`: what it says is kept, what it leaves out is not lost, and whom it knows.

A stand-in takes the package's place. It gives the answers that the package itself gave
(`scripts/record_renderers.py`); `make test-renderers` runs the package.
"""

import json
import pickle
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from agentgym_tok import ChatFormat
from agentgym_tok.chat.template import ChatTemplate
from agentgym_tok.drift import probe_template
from agentgym_tok.errors import ChatError, MissingExtra
from agentgym_tok.types import AssistantMessage, ToolCall

RECORDED = json.loads((Path(__file__).parents[1] / "vectors" / "renderers-0.1.12-turns.json").read_text("utf-8"))
FAMILY_OF = {"Qwen/Qwen3-8B": "hermes", "PrimeIntellect/Qwen3-0.6B": "qwen_xml"}
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{{ '<think>' if think }}{% endif %}"
)
PROMPT = "<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n"
MODEL = "renderers:Qwen/Qwen3-8B"
Parse = Callable[..., Any]


def parsed(content: str = "", calls: Sequence[Mapping[str, Any]] = (), **rest: Any) -> SimpleNamespace:
    """Return an answer in the package's shape."""
    nothing = {"raw": "", "name": None, "arguments": None, "token_span": None, "status": "ok", "id": None}
    found = [SimpleNamespace(**{**nothing, **call}) for call in calls]
    given = {"reasoning_content": None, "reasoning_complete": True, **rest}
    return SimpleNamespace(content=content, tool_calls=found, **given)


class Package:
    """Stand in for `renderers.base`.

    Args:
        parse: Answers for its renderers.
        prompt: What they write for one user's message, as text.
    """

    def __init__(self, parse: Parse, prompt: str = PROMPT) -> None:
        self.parse, self.prompt = parse, prompt
        self.made: list[tuple[Any, dict[str, Any]]] = []

    def create_renderer(self, tokenizer: Any, *, chat_template_kwargs: dict[str, Any] | None = None) -> Any:
        self.made.append((tokenizer, chat_template_kwargs or {}))
        return SimpleNamespace(
            config=None,
            parse_response=self.parse,
            render_ids=lambda _, add_generation_prompt: tokenizer.encode(self.prompt, add_special_tokens=False),
        )

    def module(self) -> ModuleType:
        module = ModuleType("renderers.base")
        module.MODEL_RENDERER_MAP = dict.fromkeys(FAMILY_OF, "any")  # type: ignore[attr-defined]
        module.create_renderer = self.create_renderer  # type: ignore[attr-defined]
        module.template_field_names = lambda _: frozenset({"think"})  # type: ignore[attr-defined]
        return module


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Package]:
    """Put a stand-in in the package's place."""

    def put(parse: Parse = lambda *_, **__: parsed(), prompt: str = PROMPT) -> Package:
        package = Package(parse, prompt)
        monkeypatch.setitem(sys.modules, "renderers", ModuleType("renderers"))
        monkeypatch.setitem(sys.modules, "renderers.base", package.module())
        return package

    return put


def format_of(builtin: ChatFormat, template: str = CHATML, dialect: str | None = MODEL, **kwargs: Any) -> ChatFormat:
    """Make a format on the builtin vocabulary."""
    stop_ids = list(builtin.stop_ids)
    made = ChatTemplate(template, kwargs)
    return ChatFormat(builtin._tokenizer, made, reference=("test",), stop_ids=stop_ids, dialect=dialect)


@pytest.fixture
def answer(builtin: ChatFormat, install: Callable[..., Package]) -> Callable[..., AssistantMessage]:
    """Read a turn for which the package has an answer."""

    def read(turn: str, given: Any, tools: Any = None) -> AssistantMessage:
        install(lambda *_, **__: given)
        chat = format_of(builtin)
        return chat.parse(chat.tokenize(turn), tools)

    return read


# ---- recorded turns


@pytest.fixture(params=RECORDED["families"], ids=lambda family: family["model"])
def recorded(
    request: pytest.FixtureRequest, builtin: ChatFormat, families: Mapping[str, Any], install: Callable[..., Package]
) -> tuple[ChatFormat, ChatFormat, list[tuple[dict[str, Any], Any]]]:
    """Return a format read by the package, the same read by us, and turns with their tools."""
    family = request.param
    answers = {(tuple(turn["ids"]), turn["tools"]): turn["parsed"] for turn in family["turns"]}

    def parse(ids: list[int], *, tools: Any, prompt_ids: list[int]) -> Any:
        given = answers.get((tuple(ids), tools is not None))
        if given is None or prompt_ids != family["prompt"]:
            pytest.fail("nothing was recorded for this")  # which no handler of errors takes for the package's own
        rest = {key: value for key, value in given.items() if key not in {"content", "tool_calls"}}
        calls = [{**call, "token_span": tuple(call["token_span"])} for call in given["tool_calls"]]
        return parsed(given["content"], calls, **rest)

    install(parse)
    template = families[FAMILY_OF[family["model"]]].template
    theirs = format_of(builtin, template, f"renderers:{family['model']}")
    turns = [(turn, family["tools"] if turn["tools"] else None) for turn in family["turns"]]
    return theirs, format_of(builtin, template, None), turns


def test_whole_turns_are_read_as_our_own_dialect_reads_them(recorded: Any) -> None:
    theirs, ours, turns = recorded
    assert ours.dialect in FAMILY_OF.values()
    # Bare values without a schema stay text with us, and are guessed there.
    schemas = [turn for turn in turns if turn[1] is not None or ours.dialect != "qwen_xml"]
    whole = [(turn["ids"], tools) for turn, tools in schemas if turn["whole"]]
    assert len(whole) >= 30
    statuses = {call.status for ids, tools in whole for call in theirs.parse(ids, tools).tool_calls}
    assert statuses >= {"ok", "unknown_tool"}
    for ids, tools in whole:
        assert theirs.parse(ids, tools) == ours.parse(ids, tools)


def test_pieces_of_turns_lose_no_word_and_keep_what_a_call_must_have(recorded: Any) -> None:
    theirs, _, turns = recorded
    lost_by_the_package = 0
    for turn, tools in turns:
        read = theirs.parse(turn["ids"], tools)
        said = " ".join([read.content, read.reasoning or "", *(call.raw for call in read.tool_calls)])
        words = re.findall(r"w\dq", theirs.decode(turn["ids"]))
        assert sorted(re.findall(r"w\dq", said)) == sorted(words)
        given = turn["parsed"]
        kept = f"{given['content']} {given['reasoning_content']} {[call['raw'] for call in given['tool_calls']]}"
        lost_by_the_package += any(word not in kept for word in words)
        assert len(read.tool_calls) == len(given["tool_calls"])
        for call, of_package in zip(read.tool_calls, given["tool_calls"], strict=True):
            assert list(call.tokens) == of_package["token_span"]
            assert call.raw in theirs.decode(turn["ids"][slice(*call.tokens)])
            if call.status in {"ok", "unknown_tool"}:
                assert call.name
                assert call.arguments is not None
                json.dumps(call.arguments, allow_nan=False)
    assert lost_by_the_package > 0  # else this test could not fail


# ---- what an answer becomes


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"name": "look", "arguments": {}}, "ok"),
        ({"name": "go", "arguments": {}}, "unknown_tool"),
        ({"name": None, "arguments": {}}, "missing_name"),
        ({"name": 5, "arguments": {}}, "missing_name"),
        ({"name": "look", "arguments": "x"}, "malformed"),
        ({"name": "look", "arguments": {"a": float("nan")}}, "invalid_json"),
        ({"status": "invalid_json", "arguments": "{"}, "invalid_json"),
        ({"status": "unclosed_block"}, "unclosed"),
        ({"status": "missing_name"}, "missing_name"),
        ({"status": "malformed_structure"}, "malformed"),
        ({"status": "unknown_tool", "name": "go", "arguments": {}}, "unknown_tool"),
        ({"status": "of a later version", "name": "look", "arguments": {}}, "malformed"),
    ],
)
def test_every_status_of_the_package_has_one_of_ours(
    answer: Callable[..., AssistantMessage], given: dict[str, Any], status: str
) -> None:
    call = {"raw": " x ", "token_span": (0, 3), "id": "call7", **given}
    read = answer("<tool_call>x</tool_call>", parsed("", [call]), [{"function": {"name": "look"}}])
    name = given["name"] if isinstance(given.get("name"), str) else ""
    arguments = {} if name and given.get("arguments") == {} else None
    assert read.tool_calls == (ToolCall(name, arguments, "call7", "x", (0, 3), status),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("turn", "given", "content"),
    [
        ("Go.<tool_call>x</tool_call> and <tool_call>y</tool_call>then", ["Go."], "Go.\nand\nthen"),
        ("Go.<tool_call>x</tool_call> and <tool_call>y</tool_call>then", ["Go. and then"], "Go. and then"),
        ("Go.<|im_end|>Go.<|im_end|>", ["Go."], "Go.\nGo."),
        ("<think>Go.</think>Go.<|endoftext|>Go.", ["Go.", "Go."], "Go.\nGo."),
        ("<think>Go.</think>Go.<|endoftext|>", ["Go.", "Go."], "Go."),
        ("<think>Go.", ["", "Go."], ""),
        ("Lost.<think>Go.", ["", "Go."], "Lost."),
        ("a <think> b", ["a <think> b"], "a <think> b"),
    ],
)
def test_what_the_package_leaves_out_is_appended_once(
    answer: Callable[..., AssistantMessage], builtin: ChatFormat, turn: str, given: list[str], content: str
) -> None:
    ids = builtin.tokenize(turn).tolist()
    opener, closer = builtin.tokenize("<tool_call></tool_call>").tolist()
    ends = [place + 1 for place, index in enumerate(ids) if index == closer]
    spans = zip([place for place, index in enumerate(ids) if index == opener], ends, strict=True)
    calls = [{"token_span": span, "name": "look", "arguments": {}} for span in spans]
    read = answer(turn, parsed(given[0], calls, reasoning_content=given[1] if given[1:] else None))
    assert read.content == content
    assert read.closed is turn.endswith(("<|im_end|>", "<|endoftext|>"))


def test_reasoning_that_is_not_known_to_be_open_is_closed(answer: Callable[..., AssistantMessage]) -> None:
    for complete, closed in ((True, True), (None, True), (False, False)):
        read = answer("<think>Hm.", parsed(reasoning_content=" Hm.\n", reasoning_complete=complete))
        assert (read.reasoning, read.reasoning_closed) == ("Hm.", closed)


@pytest.mark.parametrize("error", [ValueError("digits"), RecursionError(), AssertionError(), IndexError(), TypeError()])
def test_a_turn_on_which_the_package_fails_is_read_by_our_own_dialect(
    builtin: ChatFormat, install: Callable[..., Package], error: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    install(fail)
    turn = builtin.tokenize('Go.<tool_call>{"name": "look", "arguments": {}}</tool_call><|im_end|>')
    assert format_of(builtin).parse(turn) == builtin.parse(turn)


def test_the_package_gets_copies_the_prompt_and_the_tools(builtin: ChatFormat, install: Callable[..., Package]) -> None:
    seen: list[Any] = []

    def parse(ids: list[int], *, tools: Any, prompt_ids: list[int]) -> Any:
        seen.append((list(ids), tools, list(prompt_ids)))
        ids.clear()
        prompt_ids.clear()
        return parsed("Go.")

    install(parse)
    chat = format_of(builtin)
    turn, prompt = chat.tokenize("Go.").tolist(), chat.tokenize(PROMPT).tolist()
    for tools in (None, [{"name": "look"}], []):
        assert chat.parse(turn, tools).content == "Go."
    assert seen == [(turn, None, prompt), (turn, [{"name": "look"}], prompt), (turn, [], prompt)]


# ---- which models


def test_a_missing_package_says_how_to_get_it(builtin: ChatFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "renderers.base", None)
    monkeypatch.setitem(sys.modules, "renderers", ModuleType("renderers"))
    with pytest.raises(MissingExtra, match=re.escape('pip install "agentgym-tok[renderers]"')):
        format_of(builtin)


def test_a_model_that_the_package_does_not_know_is_refused(
    builtin: ChatFormat, install: Callable[..., Package]
) -> None:
    package = install()
    with pytest.raises(ChatError, match=re.escape('dialect="renderers:Qwen/Qwen3-8B"')):
        format_of(builtin, dialect="renderers:qwen/Qwen3-8b-finetuned")
    assert package.made == []


def test_a_model_of_another_prompt_is_refused(builtin: ChatFormat, install: Callable[..., Package]) -> None:
    install(prompt=PROMPT + "<think>\n")
    with pytest.raises(ChatError, match="another generation prompt for Qwen/Qwen3-8B") as raised:
        format_of(builtin)
    assert "<think>" in str(raised.value.got)


def test_what_comes_before_the_message_may_differ(builtin: ChatFormat, install: Callable[..., Package]) -> None:
    install(prompt=f"<|im_start|>system\nToday: Monday<|im_end|>\n{PROMPT}")
    assert format_of(builtin).dialect == MODEL


def test_a_tokenizer_that_the_package_refuses_is_refused(builtin: ChatFormat, install: Callable[..., Package]) -> None:
    install()
    sys.modules["renderers.base"].template_field_names = lambda _: 1 / 0  # type: ignore[attr-defined]
    with pytest.raises(ChatError, match="refuses this tokenizer"):
        format_of(builtin)


def test_template_kwargs_reach_the_renderer_where_it_has_them(
    builtin: ChatFormat, install: Callable[..., Package]
) -> None:
    package = install(prompt=PROMPT + "<think>")
    format_of(builtin, think=True, other=1)
    (first, none), (second, kwargs) = package.made
    assert (none, kwargs) == ({}, {"think": True})
    assert first is second
    assert (first.name_or_path, first.chat_template) == ("Qwen/Qwen3-8B", CHATML)
    assert first.convert_tokens_to_ids("<think>") == builtin.tokenize("<think>")[0]
    assert first.convert_tokens_to_ids("<never>") is None is first.unk_token_id
    assert first.decode(builtin.tokenize("<think>é"), skip_special_tokens=False) == "<think>é"


# ---- the format


def test_a_folder_has_no_name_and_another_can_be_given(
    tiny: Callable[..., ChatFormat], install: Callable[..., Package]
) -> None:
    install()
    folder = tiny(CHATML).reference
    with pytest.raises(ChatError, match="does not know this model"):
        ChatFormat.from_pretrained(folder, CHATML, dialect="renderers")
    chat = ChatFormat.from_pretrained(folder, CHATML, dialect=MODEL)
    assert chat.dialect == MODEL
    assert pickle.loads(pickle.dumps(chat)) is chat


def test_only_reading_changes(tiny: Callable[..., ChatFormat], install: Callable[..., Package]) -> None:
    """No id that is built depends on who reads turns, so the fingerprint is one, and a trace stays readable."""
    install()
    own = tiny(CHATML)
    chat = ChatFormat.from_pretrained(own.reference, CHATML, dialect=MODEL)
    assert (own.dialect, chat.dialect) == ("hermes", MODEL)
    assert chat.fingerprint == own.fingerprint
    assert chat.delimiters == own.delimiters
    assert chat.reasoning_pairs == own.reasoning_pairs
    turn = "<think>Hm.</think><tool_call>"
    assert chat.encode_turn(turn).tolist() == own.encode_turn(turn).tolist()
    assert probe_template(chat).probes == probe_template(own).probes
