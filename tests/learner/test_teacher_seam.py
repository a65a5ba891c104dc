"""Skills stand in a prompt only where they leave every id of it as it was."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym_tok import ChatFormat
from agentgym_tok.learner.teacher_seam import Seam, find_seam, renders
from agentgym_tok.types import Message, Trusted

PLACES: Any = ("user_start", "user_end", "system_start", "system_end")
SKILLS = "What has helped:\n- Look first: open what is closed. (When: nothing is seen)"
MESSAGES = (Message("system", "Be brief."), Message("user", "You are in a room. What now?"))

# Words that meet in unlucky ways: blanks, ends of sentences, control tokens, and characters of several bytes.
PIECES = [" ", "\n", "\n\n", ".", "a", "What", "ü", "🦙", "<|im_end|>", "<|im_", "end|>", "<think>", "- x", "\t"]
texts = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join)


def spliced(prompt_T: Any, seam: Seam) -> list[int]:
    return [*prompt_T[: seam.place].tolist(), *seam.skills_S.tolist(), *prompt_T[seam.place :].tolist()]


@pytest.fixture(params=["builtin", "qwen2_5", "qwen3", "deepseek_v3"])
def chat(request: pytest.FixtureRequest) -> ChatFormat:
    return request.getfixturevalue(request.param)


def test_skills_before_the_users_text_fit_into_the_prompts_of_every_format(chat: ChatFormat) -> None:
    prompt = chat.open(MESSAGES)
    seam = find_seam(chat, prompt, MESSAGES, SKILLS, "user_start")
    assert isinstance(seam, Seam)
    told = [MESSAGES[0], Message("user", f"{SKILLS}\n\n{MESSAGES[1].content}")]
    assert spliced(prompt.ids, seam) == chat.open(told).ids.tolist()
    assert chat.decode(seam.skills_S) == f"{SKILLS}\n\n"
    assert seam.head_T[-1] in chat.control_ids or len(seam.head_T) == len(prompt)
    assert seam.fits(prompt.ids)


def test_text_that_would_melt_into_the_prompt_is_no_seam(qwen2_5: ChatFormat) -> None:
    prompt = qwen2_5.open(MESSAGES)
    assert find_seam(qwen2_5, prompt, MESSAGES, SKILLS, "user_end") == "merged"  # "?" and a blank line are one token
    # Ids that are encoded apart would say the same words in ids that no encoding of the whole yields.
    apart = qwen2_5.encode(f"\n\n{SKILLS}").tolist()
    place = int(np.flatnonzero(prompt.ids == qwen2_5.stop_ids[0])[-1])
    glued = [*prompt.ids.tolist()[:place], *apart, *prompt.ids.tolist()[place:]]
    whole = qwen2_5.open([MESSAGES[0], Message("user", f"{MESSAGES[1].content}\n\n{SKILLS}")]).ids.tolist()
    assert qwen2_5.decode(np.array(glued)) == qwen2_5.decode(np.array(whole))
    assert glued != whole


@settings(max_examples=150)
@given(data=st.data())
def test_a_seam_only_adds_ids_and_no_control_token(builtin: ChatFormat, data: st.DataObject) -> None:
    check(builtin, data)


@settings(max_examples=60)
@given(data=st.data())
def test_so_it_is_with_a_vocabulary_of_many_merges(qwen3: ChatFormat, data: st.DataObject) -> None:
    check(qwen3, data)


def check(chat: ChatFormat, data: st.DataObject) -> None:
    parts = [Trusted(data.draw(texts)), data.draw(texts)]
    user = Message.compose("user", *data.draw(st.permutations(parts))) if data.draw(st.booleans()) else None
    messages = [Message("system", data.draw(texts)), user or Message("user", data.draw(texts))]
    text, place = data.draw(texts).strip() or "x", data.draw(st.sampled_from(PLACES))
    prompt = chat.open(messages)
    assert renders(chat, prompt, messages)
    seam = find_seam(chat, prompt, messages, text, place)
    if not isinstance(seam, Seam):
        assert seam == "merged"
        return
    inserted = f"{text}\n\n" if place.endswith("start") else f"\n\n{text}"
    assert chat.decode(seam.skills_S) == inserted
    assert not chat.control_ids.intersection(seam.skills_S.tolist())
    # The two sequences are what the template makes of the two conversations.
    whole = chat.decode(np.array(spliced(prompt.ids, seam)))
    assert whole == chat.decode(prompt.ids[: seam.place]) + inserted + chat.decode(prompt.ids[seam.place :])
    # Whatever follows the head, the encoding before it is the same.
    longer = [*messages, Message("assistant", "Yes."), Message("user", "And then?")]
    other = chat.open(longer).ids
    if seam.fits(other):
        again = find_seam(chat, chat.open(longer), longer, text, place)
        assert isinstance(again, Seam)
        assert spliced(other, again) == spliced(other, seam)


def test_skills_that_begin_like_the_message_stand_where_they_spell_themselves(chat: ChatFormat) -> None:
    prompt = chat.open(MESSAGES)
    alike = "You are in a kitchen. Look first."
    seam = find_seam(chat, prompt, MESSAGES, alike, "user_start")
    assert isinstance(seam, Seam)
    assert chat.decode(seam.skills_S) == f"{alike}\n\n"


def test_control_tokens_that_skills_spell_stay_text(builtin: ChatFormat) -> None:
    prompt = builtin.open(MESSAGES)
    spelled = "- Say <|im_end|> and <tool_call>."
    seam = find_seam(builtin, prompt, MESSAGES, spelled, "user_start")
    assert isinstance(seam, Seam)
    assert not builtin.control_ids.intersection(seam.skills_S.tolist())
    assert builtin.control_ids.intersection(builtin.tokenize(spelled).tolist())  # what a text pipeline would have made


def test_a_trusted_prompt_keeps_its_control_tokens_and_gives_none_to_the_skills(builtin: ChatFormat) -> None:
    user = Message.compose("user", Trusted("<think>"), "a room <think>", Trusted(" <think>"))
    prompt = builtin.open([user])
    count = int(np.isin(prompt.ids, list(builtin.control_ids)).sum())
    for place in ("user_start", "user_end"):
        seam = find_seam(builtin, prompt, [user], "- <think> hard", place)  # type: ignore[arg-type]
        assert isinstance(seam, Seam), place
        assert int(np.isin(spliced(prompt.ids, seam), list(builtin.control_ids)).sum()) == count


def test_where_no_message_has_the_role_there_is_no_place(builtin: ChatFormat) -> None:
    messages = [Message("user", "Hello.")]
    assert find_seam(builtin, builtin.open(messages), messages, SKILLS, "system_start") == "no_place"


def test_other_messages_do_not_render_to_the_prompt(builtin: ChatFormat) -> None:
    prompt = builtin.open(MESSAGES)
    assert renders(builtin, prompt, MESSAGES)
    assert not renders(builtin, prompt, MESSAGES[:1])
    assert not renders(builtin, prompt, [MESSAGES[0], Message("user", "Another room.")])
