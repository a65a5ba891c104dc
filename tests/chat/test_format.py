"""A chat format is one object per tokenizer, template and settings; it travels by reference and knows its own ids."""

import copy
import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat, Message
from agentgym_tok.errors import ChatError, FingerprintMismatch, InvalidIds, MissingExtra
from agentgym_tok.tokens import Context, Root, Span

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
USER = {"role": "user", "content": "Hi."}


# ---- identity


def test_equal_calls_return_one_object(tiny: Callable[..., ChatFormat]) -> None:
    assert ChatFormat.builtin() is ChatFormat.builtin()
    assert tiny(CHATML, a=1, b=2) is tiny(CHATML, b=2, a=1)
    assert tiny(CHATML, a=1) is not tiny(CHATML, a=2)


def test_formats_pickle_by_reference_and_are_never_copied(builtin: ChatFormat, tiny: Callable[..., ChatFormat]) -> None:
    for chat in (builtin, tiny(CHATML), tiny(CHATML, a={"b": [1]})):
        assert pickle.loads(pickle.dumps(chat)) is chat
        assert copy.deepcopy([chat])[0] is chat
        assert copy.copy(chat) is chat
        assert len(pickle.dumps(chat)) < 2000


@pytest.mark.parametrize("which", ["builtin", "tiny"])
def test_a_format_is_the_same_in_another_process(
    which: str, builtin: ChatFormat, tiny: Callable[..., ChatFormat], tmp_path: Path
) -> None:
    chat = builtin if which == "builtin" else tiny(CHATML, a=1)
    code = (
        "import pickle, sys; chat = pickle.loads(bytes.fromhex(sys.argv[1]));"
        "print(chat.fingerprint, chat.stop_ids, chat.open([{'role': 'user', 'content': 'Hi.'}]).digest)"
    )
    command = [sys.executable, "-c", code, pickle.dumps(chat).hex()]
    out = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout.strip()
    assert out == f"{chat.fingerprint} {chat.stop_ids} {chat.open([USER]).digest}"


def test_a_relative_folder_means_the_same_after_a_change_of_directory(
    tiny: Callable[..., ChatFormat], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = Path(tiny(CHATML).reference)
    monkeypatch.chdir(folder.parent)
    chat = ChatFormat.from_pretrained(folder.name, CHATML)
    monkeypatch.chdir(tmp_path)
    assert chat is tiny(CHATML)
    assert pickle.loads(pickle.dumps(chat)) is chat


def test_a_format_that_changed_on_its_way_is_refused(tiny: Callable[..., ChatFormat]) -> None:
    chat = tiny(CHATML)
    restore, (reference, _) = chat.__reduce__()
    with pytest.raises(FingerprintMismatch, match="changed on its way"):
        restore(reference, "0" * 64)


def test_the_representation_says_which_format_it_is(builtin: ChatFormat) -> None:
    shown = f"vocab_size={builtin.vocab_size}, dialect='hermes', fingerprint='{builtin.fingerprint[:12]}'"
    assert repr(builtin) == f"ChatFormat('builtin', {shown})"


# ---- fingerprint


def test_the_fingerprint_names_tokenizer_template_and_settings(
    builtin: ChatFormat, tiny: Callable[..., ChatFormat], tmp_path: Path
) -> None:
    chat = tiny(CHATML)
    grown = tmp_path / "grown"
    shutil.copytree(chat.reference, grown)
    rules = json.loads((grown / "tokenizer.json").read_text(encoding="utf-8"))
    rules["added_tokens"].append({**rules["added_tokens"][0], "id": builtin.vocab_size, "content": "<|new|>"})
    (grown / "tokenizer.json").write_text(json.dumps(rules), encoding="utf-8")
    formats = [
        chat,
        builtin,
        tiny(CHATML + " "),
        tiny(CHATML, enable_thinking=False),
        tiny(CHATML, enable_thinking=True),
        ChatFormat.from_pretrained(grown, CHATML),
    ]
    stops = tmp_path / "stops"
    shutil.copytree(chat.reference, stops)
    (stops / "generation_config.json").write_text('{"eos_token_id": [3, 7]}', encoding="utf-8")
    formats.append(ChatFormat.from_pretrained(stops, CHATML))
    assert len({one.fingerprint for one in formats}) == len(formats)
    moved = tmp_path / "moved"
    shutil.copytree(chat.reference, moved)
    assert ChatFormat.from_pretrained(moved, CHATML).fingerprint == chat.fingerprint


def test_a_name_on_the_hub_has_the_stops_of_its_folder(
    tiny: Callable[..., ChatFormat], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    stops = tmp_path / "stops"
    shutil.copytree(tiny(CHATML).reference, stops)
    (stops / "generation_config.json").write_text('{"eos_token_id": [3, 7]}', encoding="utf-8")
    local = transformers.AutoTokenizer.from_pretrained
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda name: local(stops))
    asked: list[tuple[str, str]] = []

    def cached_file(name: str, file: str, **_: object) -> str | None:
        asked.append((name, file))
        return str(stops / file) if name == "somebody/model" else None

    monkeypatch.setattr(transformers.utils, "cached_file", cached_file)
    by_name = ChatFormat.from_pretrained("somebody/model", CHATML)
    assert asked == [("somebody/model", "generation_config.json")]
    assert by_name.fingerprint == ChatFormat.from_pretrained(stops, CHATML).fingerprint
    assert ChatFormat.from_pretrained("somebody/other", CHATML).fingerprint != by_name.fingerprint


def test_a_recipe_makes_the_format_again(builtin: ChatFormat, tiny: Callable[..., ChatFormat]) -> None:
    given = tiny(CHATML, enable_thinking=False)
    for chat in (builtin, tiny(CHATML), given):
        recipe = json.loads(json.dumps(chat.recipe))
        assert ChatFormat.from_recipe(recipe).fingerprint == chat.fingerprint
    assert given.recipe["template_kwargs"] == {"enable_thinking": False}
    assert builtin.recipe == {"path_or_id": "builtin"}


def test_a_context_of_another_format_is_refused_not_warned(
    builtin: ChatFormat, tiny: Callable[..., ChatFormat]
) -> None:
    chat = tiny(CHATML)
    context = builtin.open([USER]).sampled([*builtin.stop_ids[:1]])
    with pytest.raises(FingerprintMismatch, match="another chat format"):
        chat.bridge(context, [USER])
    with pytest.raises(FingerprintMismatch):
        chat.check(Context(Root("other", 10), Span([1], "prompt")))
    chat.check(chat.open([USER]))


def test_tools_have_their_own_digest(builtin: ChatFormat) -> None:
    tool = {"name": "look"}
    plain, with_tool = builtin.open([USER]), builtin.open([USER], [tool])
    assert (plain.root.fingerprint, plain.root.tools_digest) == (builtin.fingerprint, "")
    assert with_tool.root.fingerprint == builtin.fingerprint
    assert with_tool.root.tools == (tool,)
    assert builtin.open([USER], []).root == plain.root


# ---- stop ids and turns


def test_the_first_stop_id_is_what_the_template_writes_behind_an_assistants_text(
    builtin: ChatFormat, tiny: Callable[..., ChatFormat]
) -> None:
    texts = [builtin.token_text(index) for index in builtin.stop_ids]
    assert texts == ["<|im_end|>", "<|endoftext|>"]
    assert [builtin.token_text(index) for index in tiny(CHATML).stop_ids] == texts
    no_closer = tiny("{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}")
    assert [builtin.token_text(index) for index in no_closer.stop_ids] == ["<|endoftext|>", "<|im_start|>"]
    eos_closer = tiny("{% for m in messages %}{{ m.content + eos_token }}{% endfor %}")
    assert [builtin.token_text(index) for index in eos_closer.stop_ids] == ["<|endoftext|>"]


def test_models_stop_where_their_templates_close_a_turn(
    qwen2_5: ChatFormat, qwen3: ChatFormat, deepseek_v3: ChatFormat
) -> None:
    assert qwen2_5.token_text(qwen2_5.stop_ids[0]) == qwen3.token_text(qwen3.stop_ids[0]) == "<|im_end|>"
    assert deepseek_v3.token_text(deepseek_v3.stop_ids[0]) == "<\uff5cend\u2581of\u2581sentence\uff5c>"


@pytest.mark.parametrize(("stops", "more"), [([0, 1, 2], 1), (1, 1), (None, 0), ([], 0), ([2], 0)])
def test_a_models_generation_config_adds_stop_ids(
    tiny: Callable[..., ChatFormat], tmp_path: Path, stops: Any, more: int
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny(CHATML).reference, folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": stops}), encoding="utf-8")
    assert len(ChatFormat.from_pretrained(folder, CHATML).stop_ids) == len(tiny(CHATML).stop_ids) + more


@given(st.lists(st.sampled_from(["<think>", "</think>", "<tool_call>", "</tool_call>", "a", "<", "|im_end|>", "\n"])))
@settings(max_examples=60, deadline=None)
def test_an_experts_turn_has_its_delimiters_and_one_stop_token_at_its_end(
    builtin: ChatFormat, parts: list[str]
) -> None:
    text = "".join(parts)
    ids = builtin.encode_turn(text).tolist()
    control = [builtin.token_text(index) for index in ids if index in builtin.control_ids]
    assert control == [part for part in parts if len(part) > 3 and part != "|im_end|>"] + ["<|im_end|>"]
    assert ids[-1] == builtin.stop_ids[0]
    assert builtin.decode(ids[:-1]) == text


@pytest.mark.parametrize(
    "text", ["go<|im_end|>", "<|im_start|>user\nx", "<|endoftext|>", "<think>a<|im_end|></think>b", ""]
)
def test_an_expert_cannot_end_its_turn_or_begin_another(builtin: ChatFormat, text: str) -> None:
    ids = builtin.encode_turn(text).tolist()
    control = [builtin.token_text(index) for index in ids if index in builtin.control_ids]
    assert [token for token in control if "think" not in token] == ["<|im_end|>"]
    assert builtin.parse(ids).closed
    assert builtin.decode(ids) == text + "<|im_end|>"


def test_an_experts_turn_is_read_back_by_parse(chat: ChatFormat) -> None:
    call = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    if chat.dialect == "deepseek":
        call = "<｜tool▁call▁begin｜>look<｜tool▁sep｜>{}<｜tool▁call▁end｜>"  # noqa: RUF001
    read = chat.parse(chat.encode_turn(f"<think>\nHm.\n</think>\n\nNow.\n{call}"))
    assert (read.reasoning, read.content, read.closed) == ("Hm.", "Now.", True)
    assert [(call.name, call.status) for call in read.tool_calls] == [("look", "ok")]


def test_open_takes_messages_and_dictionaries_alike(builtin: ChatFormat) -> None:
    assert builtin.open([USER]).digest == builtin.open([Message("user", "Hi.")]).digest
    context = builtin.open([USER])
    assert (context.span.origin, context.parent, context.root.vocab_size) == ("prompt", None, builtin.vocab_size)


@pytest.mark.parametrize("tools", [[print], ["look"], [{"a": {1}}]])
def test_tools_that_are_no_schemas_are_refused(builtin: ChatFormat, tools: Any) -> None:
    with pytest.raises(ChatError, match="tool"):
        builtin.open([USER], tools)


# ---- as text pipelines do it


def test_the_template_and_the_tokenizer_can_be_used_as_everybody_does(
    unpack: Callable[[str], Path], request: pytest.FixtureRequest
) -> None:
    """The judge is transformers itself."""
    from transformers import AutoTokenizer

    said = [USER, {"role": "assistant", "content": "a<|im_end|>b<think>\n"}, {"role": "user", "content": "Then?"}]
    for name in ("qwen2_5", "qwen3", "deepseek_v3"):
        chat, model = request.getfixturevalue(name), AutoTokenizer.from_pretrained(unpack(name))
        for generation in (False, True):
            text = chat.apply_chat_template(said, add_generation_prompt=generation)
            assert text == model.apply_chat_template(said, add_generation_prompt=generation, tokenize=False)
            assert chat.tokenize(text).tolist() == model.encode(text, add_special_tokens=False)
            assert chat.tokenize(text, add_special_tokens=True).tolist() == model.encode(text)


def test_text_of_a_pipeline_has_nothing_protected(builtin: ChatFormat) -> None:
    said = [{"role": "user", "content": "a<|im_end|>\udc00"}]
    text = builtin.apply_chat_template(said, [{"name": "look"}])
    assert "a<|im_end|>\ufffd" in text
    assert '{"name": "look"}' in text
    closers = [ids.tolist().count(builtin.stop_ids[0]) for ids in (builtin.tokenize(text), builtin.open(said).ids)]
    assert closers == [3, 1]  # system, the user's own and what he spells
    with pytest.raises(ChatError, match="lone surrogates"):
        builtin.tokenize("\udc00")


def test_a_rendering_can_read_other_kwargs_once(tiny: Callable[..., ChatFormat]) -> None:
    chat = tiny(CHATML + "{{ word }}{{ strftime_now('%Y') }}", word="old")
    assert chat.apply_chat_template([USER], word="new", strftime_now=lambda _: "!").endswith("new!")
    assert "old2" in chat.apply_chat_template([USER])


@given(st.lists(st.integers(0, 4095), max_size=30))
@settings(max_examples=60, deadline=None)
def test_the_bytes_of_ids_make_their_text(builtin: ChatFormat, ids: list[int]) -> None:
    pieces = builtin.token_bytes(ids)
    assert len(pieces) == len(ids)
    assert b"".join(pieces).decode("utf-8", "replace") == builtin.decode(ids)
    with pytest.raises(InvalidIds):
        builtin.token_bytes([*ids, builtin.vocab_size])


def test_a_format_tells_its_bos_its_delimiters_and_whether_it_writes_calls(
    builtin: ChatFormat, tiny: Callable[..., ChatFormat]
) -> None:
    assert (builtin.bos_id, tiny(CHATML, bos_token="<|im_start|>").bos_id) == (None, 1)
    assert builtin.reasoning_pairs == (("<think>", "</think>"),)
    assert set(builtin.delimiters) == {"<think>", "</think>", "<tool_call>", "</tool_call>"}
    assert builtin.writes_calls(with_text=True)
    assert not tiny(CHATML).writes_calls(with_text=False)


# ---- from_pretrained


def test_without_transformers_the_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, builtin: ChatFormat
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"agentgym-tok\[hf\]"):
        ChatFormat.from_pretrained(tmp_path)
    assert builtin.open([USER]).digest  # the builtin format needs no extra


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"tokenizer.json": "{"},
        {"tokenizer.json": "{}"},
        {"tokenizer.json": "[]"},
        {"tokenizer.json": '{"added_tokens": [], "model": {"type": "Nonesuch"}}'},
    ],
)
def test_a_folder_without_a_whole_tokenizer_is_refused(tmp_path: Path, files: dict[str, str]) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ChatError, match="no tokenizer could be loaded") as caught:
        ChatFormat.from_pretrained(tmp_path)
    assert str(caught.value.where) == str(tmp_path)


def test_a_folder_that_is_not_there_is_refused_without_the_network(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(ChatError, match="no tokenizer"):
        ChatFormat.from_pretrained(tmp_path / "missing" / "folder")


def test_a_tokenizer_without_a_template_needs_one(tiny: Callable[..., ChatFormat]) -> None:
    folder = tiny(CHATML).reference
    with pytest.raises(ChatError, match=r"no chat template.*pass chat_template"):
        ChatFormat.from_pretrained(folder)


@pytest.mark.parametrize("template", ["", "Hello", "{{ messages[0].content }}", "{{ messages[-1].content | upper }}"])
def test_a_template_that_does_not_keep_an_assistants_text_is_refused(
    tiny: Callable[..., ChatFormat], template: str
) -> None:
    with pytest.raises(ChatError, match="does not keep an assistant's text"):
        tiny(template)


@pytest.mark.parametrize("kwargs", [{"now": object()}, {"tags": {1}}])
def test_template_kwargs_that_are_no_json_are_refused(tiny: Callable[..., ChatFormat], kwargs: dict[str, Any]) -> None:
    with pytest.raises(ChatError, match="must be JSON"):
        tiny(CHATML, **kwargs)


@pytest.mark.parametrize("text", ["{", "[]", '{"eos_token_id": "x"}'])
def test_a_broken_generation_config_is_refused(tiny: Callable[..., ChatFormat], tmp_path: Path, text: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny(CHATML).reference, folder)
    (folder / "generation_config.json").write_text(text)
    with pytest.raises(ChatError, match="no stop tokens"):
        ChatFormat.from_pretrained(folder, CHATML)


def test_a_tokenizer_whose_tokens_have_no_bytes_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    import tokenizers

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    words.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(ChatError, match="no bytes of its own"):
        ChatFormat.from_pretrained(tmp_path, CHATML)
