"""The bridge on template families: 0 wrong bridges, whatever was sampled and whatever the world says.

The judge is the template itself: it renders the whole conversation, and what stands behind the turn there is what the
bridge must add. It shares no code with the bridge's stubs. Every template gets the builtin vocabulary and its family's
own control tokens. Templates that models ship come out of the trl wheel (`make templates`).
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import resources
from itertools import takewhile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat, Context, Message, Refusal, Sampling, ToolCall
from agentgym_tok.envs import RecordTrace, TextObservation, TokenEnv, Transcript
from agentgym_tok.envs.token_env import PLAIN_WORDS
from agentgym_tok.errors import ChatError
from agentgym_tok.trace import RunMeta, TraceStore, verify

SPECIAL = {"bos_token": "<|bos|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>", "unk_token": "<|unk|>"}
SPELLED = re.compile(
    r"<\|[^|<>{}'\"\s]{1,40}\|>|<\uff5c[^<>{}'\"\s]{1,40}\uff5c>|</?[a-z_]{1,30}>|\[/?[A-Z_]{3,20}\]"
    r"|<[a-z_]{1,20}\|>|<\|[a-z_]{1,20}>"
)


def loop(body: str, end: str = "") -> str:
    return (
        "{{ bos_token }}{% for m in messages %}"
        + body
        + "{% endfor %}{% if add_generation_prompt %}"
        + end
        + "{% endif %}"
    )


CALLS = "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
OWN = {
    "closes with one token for all": loop("<|{{ m.role }}|>{{ m.content }}" + CALLS + "<|end|>", "<|assistant|>"),
    "writes a line break behind its close": loop(
        "<|open|>{{ m.role }}\n{{ m.content }}" + CALLS + "<|close|>\n", "<|open|>assistant\n"
    ),
    "has only openers": loop(
        "{{ {'user': '<|user|>', 'system': '<|system|>', 'tool': '<|observation|>'}[m.role] or '<|assistant|>' }}"
        "\n{{ m.content }}" + CALLS,
        "<|assistant|>",
    ),
    "closes the last turn otherwise": loop(
        "<|start|>{{ m.role }}<|message|>{{ m.content }}"
        + CALLS
        + "{{ '<|return|>' if loop.last and m.role == 'assistant' and not add_generation_prompt else '<|end|>' }}",
        "<|start|>assistant<|message|>",
    ),
    "ends calls otherwise": loop(
        "<|start|>{{ m.role }}<|message|>{{ m.content }}" + CALLS + "{{ '<|call|>' if m.tool_calls else '<|end|>' }}",
        "<|start|>assistant<|message|>",
    ),
    "ends the whole text": loop("<|{{ m.role }}|>\n{{ m.content }}" + CALLS + "<|end|>\n", "<|assistant|>\n")
    + "{% if not add_generation_prompt %}{{ eos_token }}{% endif %}",
    "trims every text": loop(
        "<|open|>{{ m.role }}\n{{ m.content | trim }}" + CALLS + "<|close|>\n", "<|open|>assistant\n"
    ),
    "strips earlier reasoning": loop(
        "<|open|>{{ m.role }}\n{% if m.role == 'assistant' %}"
        "{% if loop.last %}<think>\n{{ m.reasoning_content or '' }}\n</think>\n\n{% endif %}"
        "{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}" + CALLS + "<|close|>\n",
        "<|open|>assistant\n",
    ),
    "opens reasoning in the prompt": loop(
        "<|open|>{{ m.role }}\n{{ m.content }}" + CALLS + "<|close|>\n", "<|open|>assistant\n<think>\n"
    ),
    "tells the time": "{{ strftime_now('%H:%M:%S.%f') }}"
    + loop("<|open|>{{ m.role }}\n{{ m.content }}" + CALLS + "<|close|>\n", "<|open|>assistant\n"),
    "brings a system prompt": "{% if messages[0].role != 'system' %}<|open|>system\nBe kind.<|close|>\n{% endif %}"
    + loop("<|open|>{{ m.role }}\n{{ m.content }}" + CALLS + "<|close|>\n", "<|open|>assistant\n"),
    "joins the results of one turn": loop(
        "{% if m.role != 'tool' %}<|open|>{{ m.role }}\n{{ m.content }}" + CALLS + "<|close|>\n"
        "{% else %}{% if loop.previtem.role != 'tool' %}<|open|>user{% endif %}"
        "\n<tool_response>\n{{ m.content }}\n</tool_response>"
        "{% if loop.last or loop.nextitem.role != 'tool' %}<|close|>\n{% endif %}{% endif %}",
        "<|open|>assistant\n",
    ),
    "quotes results as JSON": loop(
        "<|{{ m.role }}|>{{ m.content | tojson if m.role == 'tool' else m.content }}" + CALLS + "<|end|>",
        "<|assistant|>",
    ),
    "takes the tool's name from the call": loop(
        "{% if m.role == 'tool' %}{% set c = messages[:loop.index0] | map(attribute='tool_calls') | select | list %}"
        "<|start|>{{ c[-1][0].function.name }} to=assistant<|message|>{{ m.content }}<|end|>"
        "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}" + CALLS + "<|end|>{% endif %}",
        "<|start|>assistant<|message|>",
    ),
    "builds a token around the role": loop(
        "{{ '<|' + m.role + '|>' }}{{ m.content }}" + CALLS + "<|user|><|tool|><|end|>", "<|assistant|>"
    ),
    "reads parts": loop(
        "<|open|>{{ m.role }}\n{% for p in m.content %}{{ p.text }}{% endfor %}" + CALLS + "<|close|>\n",
        "<|open|>assistant\n",
    ),
    "lets only two alternate": loop(
        "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}"
        "<|open|>{{ m.role }}\n{{ m.content }}<|close|>\n",
        "<|open|>assistant\n",
    ),
    "forgets results": loop(
        "{% if m.role != 'tool' %}<|open|>{{ m.role }}\n{{ m.content }}" + CALLS + "<|close|>\n{% endif %}",
        "<|open|>assistant\n",
    ),
}


def trl() -> dict[str, str]:
    folder = os.environ.get("AGENTGYM_TOK_TRL")
    files = sorted(Path(folder).glob("*.jinja")) if folder else []
    return {file.stem: file.read_text(encoding="utf-8") for file in files if not file.stem.endswith("_training")}


SOURCES = OWN | trl()


@pytest.fixture(scope="session")
def family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ChatFormat]:
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("families")
    made: dict[str, ChatFormat] = {}

    def make(name: str) -> ChatFormat:
        if name not in made:
            made[name] = build(folder / re.sub(r"\W", "_", name), SOURCES[name])
        return made[name]

    return make


def build(folder: Path, source: str) -> ChatFormat:
    rules = json.loads(
        (resources.files("agentgym_tok.chat") / "builtin" / "tokenizer.json").read_text(encoding="utf-8")
    )
    known = {token["content"] for token in rules["added_tokens"]}
    size = 1 + max(rules["model"]["vocab"].values())
    for text in sorted({*SPELLED.findall(source), *SPECIAL.values()} - known):
        token = {"id": size, "content": text, "single_word": False, "lstrip": False, "rstrip": False}
        rules["added_tokens"].append({**token, "normalized": False, "special": False})
        size += 1
    folder.mkdir()
    (folder / "tokenizer.json").write_text(json.dumps(rules), encoding="utf-8")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **SPECIAL}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return ChatFormat.from_pretrained(folder, source)


# ---- the judge


def rendered(chat: ChatFormat, messages: list[Message]) -> str:
    return chat._template.render([message.to_dict() for message in messages], None, generation=True)


def tail_of(chat: ChatFormat, said: Message, word: str, messages: list[Message]) -> tuple[str, str]:
    """Return what the template writes behind a turn's last word: before these messages, and where none follows."""
    past = [Message("user", "Begin."), said]
    alone = chat._template.render([message.to_dict() for message in past], None, generation=False)
    return rendered(chat, [*past, *messages]).partition(word)[2], alone.partition(word)[2]


def controls(chat: ChatFormat, text: str) -> int:
    return len(chat._tokenizer._spelled.findall(text))


def turn_before(chat: ChatFormat, word: str, messages: list[Message]) -> Message:
    """Return a turn that the messages may follow: it calls as many tools as the template lets it, else it speaks."""
    results = list(takewhile(lambda message: message.role == "tool", messages))
    for count in sorted({len(results), 1}, reverse=True) if results else []:
        calls = [ToolCall("look", {"at": "x"}, "call00001")] * (count - 1) + [
            ToolCall("look", {"at": word}, "call00001")
        ]
        said = Message("assistant", "", tuple(calls))
        try:
            if word in rendered(chat, [Message("user", "Begin."), said, *messages]):
                return said
        except ChatError:
            continue
    return Message("assistant", word)


def neutral(messages: list[Message]) -> list[Message]:
    """Return messages whose words spell nothing, each as empty or not as before."""
    return [
        Message(m.role, "x" if m.content.strip() else "", name=m.name, tool_call_id=m.tool_call_id) for m in messages
    ]


def judge(chat: ChatFormat, sampled: list[int], said: Message, word: str, messages: list[Message]) -> str | None:
    """Check one bridge; return the reason where it was refused."""
    context = chat.open([Message("user", "Begin.")]).sampled(sampled)
    result = chat.bridge(context, messages)
    if isinstance(result, Refusal):
        return result.reason
    assert result.parent is context
    assert result.ids[: len(context)].tolist() == context.ids.tolist()
    ends = {chat.token_text(index) for index in (*chat.stop_ids, *chat._bridge.ends.closers)}
    last = chat._tokenizer.control_texts.get(sampled[-1], "") if sampled else ""
    got = chat.decode(result.span.ids_T)
    clean = [replace(message, content=message.content.replace("\ud800", "\ufffd")) for message in messages]
    expected, alone = tail_of(chat, said, word, clean)
    forms = [got]
    if last not in ends:
        # A cut inside reasoning gets the end of that, and a cut call the close that nothing else would give it.
        forms += [got.removeprefix("</think>").lstrip("\n")] * got.startswith("</think>")
        forms += [form.removeprefix(chat.token_text(chat.stop_ids[0])) for form in forms if said.tool_calls]
    added = next((got[: len(got) - len(form)] for form in forms if expected.endswith(form)), None)
    assert added is not None, (expected, got)
    got = got.removeprefix(added)
    skipped = expected.removesuffix(got)
    # What stands before: the syntax of the call, which the policy wrote itself, and the close, if it wrote that.
    drawn = next((end for end in sorted(ends, key=len) if skipped.endswith(end)), "") if last in ends else ""
    syntax = skipped.removesuffix(drawn)
    assert alone.startswith(syntax)
    assert not syntax or said.tool_calls
    # World text never becomes a control token: there are as many as around words that spell none.
    plain, _ = tail_of(chat, said, word, neutral(clean))
    meant = controls(chat, plain) - controls(chat, skipped) + controls(chat, added)
    assert sum(index in chat.control_ids for index in result.span.ids_T.tolist()) == meant
    return None


# ---- what the world and the policy may say

plain_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
spelled_text = st.sampled_from(
    [
        "<|im_end|>",
        "<|end|>",
        "<|close|>",
        "<tool_call>",
        "<think>",
        "</think>",
        "<|eot_id|>",
        "<|user|>",
        "<|end",
        "[INST]",
    ]
)
world_text = st.lists(plain_text | spelled_text | st.sampled_from(["\n", " ", "\0", "\ud800", "word"]), max_size=4).map(
    "".join
)
follow_ups = st.lists(
    st.one_of(
        world_text.map(lambda text: Message("user", text)),
        world_text.map(lambda text: Message("tool", text, name="look", tool_call_id="call00001")),
    ),
    min_size=1,
    max_size=3,
)
sampled_ids = st.lists(st.integers(0, 4095), max_size=8)
EXAMPLES = int(os.environ.get("AGENTGYM_TOK_EXAMPLES", "200"))


@pytest.mark.parametrize("name", list(SOURCES))
@given(ids=sampled_ids, stop=st.integers(-1, 5), messages=follow_ups)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
def test_no_bridge_is_wrong(
    family: Callable[[str], ChatFormat], name: str, ids: list[int], stop: int, messages: list[Message]
) -> None:
    chat = family(name)
    word = "said42said"
    stops = [chat.stop_ids[stop]] if 0 <= stop < len(chat.stop_ids) else []
    said = turn_before(chat, word, messages)
    try:
        rendered(chat, [Message("user", "Begin."), said, *messages])
    except ChatError:
        refusal = chat.bridge(chat.open([Message("user", "Begin.")]).sampled([*ids, *stops]), messages)
        assert isinstance(refusal, Refusal)
        return
    judge(chat, [*ids, *stops], said, word, messages)


# ---- what is not refused

USER = [Message("user", "You see a desk.")]
RESULT = [Message("tool", "a lamp", name="look", tool_call_id="call00001")]
RESULTS = [*RESULT, Message("tool", "a chair", name="look", tool_call_id="call00002")]
KINDS = {"user": USER, "tool": RESULT, "tools": RESULTS, "tool and user": [*RESULT, *USER]}
NO_TOOLS = {"cohere", "gemma", "gemma3", "llava_next", "lets only two alternate"}
"""Templates that raise for a tool's message: there the refusal is the template's own."""
LOSES_RESULTS = {"cohere2", "phi3", "phi3_5", "forgets results"}
"""Templates that leave a tool's message out."""


def stopped(chat: ChatFormat, messages: list[Message]) -> Context:
    """Return a turn that stopped as the family's models do."""
    openers = {"tool": ["<|observation|>", "<|call|>", "<|tool_response>"], "user": ["<|user|>"]}[messages[0].role]
    spelled = {chat.token_text(index): index for index in chat.stop_ids}
    stop = next((spelled[text] for text in openers if text in spelled), chat.stop_ids[0])
    return chat.open([Message("user", "Begin.")]).sampled([*chat.encode("go north").tolist(), stop])


@pytest.mark.parametrize("name", list(SOURCES))
def test_only_what_a_template_cannot_write_is_refused(family: Callable[[str], ChatFormat], name: str) -> None:
    chat = family(name)
    for kind, messages in KINDS.items():
        result = chat.bridge(stopped(chat, messages), messages)
        reason = result.reason if isinstance(result, Refusal) else None
        if kind == "user" or name not in NO_TOOLS | LOSES_RESULTS:
            assert reason is None, result
        else:
            assert reason == ("template_refuses" if name in NO_TOOLS else "content_lost")


def test_at_most_one_in_ten_is_refused_where_the_template_itself_does_not_raise() -> None:
    kinds = len(SOURCES) * len(KINDS) - 3 * len(NO_TOOLS & set(SOURCES))
    assert 3 * len(LOSES_RESULTS & set(SOURCES)) <= kinds / 10


def test_in_ci_the_templates_that_models_ship_are_there() -> None:
    if os.environ.get("CI"):
        assert len(trl()) >= 30
    assert len(OWN) >= 15


# ---- fidelity

turns = st.lists(
    st.tuples(
        st.text("abc XYZ.,", min_size=1, max_size=12), world_text.filter(lambda text: not set(text) & set("<[\ud800"))
    ),
    max_size=4,
)


@pytest.mark.parametrize("name", list(SOURCES))
@given(rounds=turns)
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_a_bridged_conversation_is_the_rendered_one_where_the_template_keeps_its_past(
    family: Callable[[str], ChatFormat], name: str, rounds: list[tuple[str, str]]
) -> None:
    """Where each rendering begins with the one before and the turn, open and bridge give its ids, id for id."""
    chat = family(name)
    history = [Message("user", "Begin.")]
    context = chat.open(history)
    for said, answer in rounds:
        before = rendered(chat, history)
        history += [Message("assistant", said), Message("user", answer)]
        whole = rendered(chat, history) if "strftime_now" not in SOURCES[name] else ""
        if not whole.startswith(before + said):
            return  # the template rewrites its past, or the turn
        close = chat._tokenizer.first_control(whole[len(before + said) :])
        turn_T = chat._tokenizer.encode(before + said + (close or "")).tolist()
        if close is None or turn_T[: len(context)] != context.ids.tolist():
            return  # the turn's own ids would not be canonical behind this prompt
        bridged = chat.bridge(context.sampled(turn_T[len(context) :]), history[-1:])
        assert not isinstance(bridged, Refusal)
        context = bridged
        assert context.ids.tolist() == chat.open(history).ids.tolist()


# ---- logged is sent


class Echo(gym.Env[str, str]):
    """Say what was said, and control tokens."""

    observation_space = action_space = gym.spaces.Text(1000)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return "Begin. <|im_end|><|end|>", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return f"\0{action}\ud800 <|end|></s><think>", 0.0, False, False, {}


@pytest.mark.parametrize("name", [name for name in SOURCES if "strftime_now" not in SOURCES[name]])
def test_what_is_logged_of_every_family_is_what_was_sent(
    family: Callable[[str], ChatFormat], name: str, tmp_path: Path
) -> None:
    """Random ids as turns: the log holds the very ids, and makes each context again from its messages."""
    chat = family(name)
    draw = np.random.default_rng(0)
    meta = RunMeta(fingerprint=chat.fingerprint, vocab_size=chat.vocab_size)
    prompting = NoSystem(PLAIN_WORDS)
    with TraceStore(tmp_path, meta=meta) as store:
        env = RecordTrace(TokenEnv(Echo(), chat, prompting, max_steps=4), store)
        sent = [env.reset(seed=0)[0]]
        said = []
        for place in range(4):
            turn = [*draw.integers(chat.vocab_size, size=6).tolist(), *chat.stop_ids[: place % 2]]
            env.note(-draw.random(len(turn)), Sampling())
            said.append(turn)
            sent.append(env.step(np.array(turn))[0])
        (episode,) = store.episodes()
    assert [turn.context.ids.tolist() for turn in episode.turns] == [ids_T.tolist() for ids_T in sent[:4]]
    assert [turn.completion.ids_T.tolist() for turn in episode.turns] == said
    found = verify(tmp_path, chat)
    assert found.ok, found.breaches
    assert found.replayed == 4


class NoSystem(Transcript):
    """Begin with the world's words: some templates know no system message."""

    def open(self, observation: TextObservation, task: Mapping[str, Any]) -> list[Message]:
        return super().open(observation, task)[1:]
