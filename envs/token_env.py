"""One wrapper that makes any text world a token-native Gymnasium environment."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np

from agentgym_tok.chat import ChatFormat, Refusal
from agentgym_tok.chat.inline import INLINE
from agentgym_tok.envs.engine import TextObservation
from agentgym_tok.envs.explorer import Explorer
from agentgym_tok.envs.foreign import Isolation, World, world_engine
from agentgym_tok.envs.presets import PRESETS, Presets, make_prompting
from agentgym_tok.envs.prompting import Command, Exchange, Prompting, Words, expert_turn
from agentgym_tok.envs.shorten import shorten
from agentgym_tok.errors import ConfigError, InvalidAction, ResetNeeded, UnknownName, unknown_name
from agentgym_tok.spaces import TokenSpace
from agentgym_tok.tokens import TURN_ORIGINS, Context, Ids, Span, as_ids
from agentgym_tok.types import Message

__all__ = ["PLAIN_WORDS", "TokenEnv"]

_NOTHING = Span(as_ids([]), "observation")

_SOMETIMES = frozenset({"refusal", "shortened"})
"""Names in `info` that appear only when it happens."""

PLAIN_WORDS = Words(
    system="You act in a text world. Every turn you give one command. End each turn with <action>COMMAND</action>.",
    role="You act in a text world, by one command a turn.",
    answer="Reason between <think> and </think>, then write one command between <action> and </action>.",
)


class TokenEnv(gym.Env[Ids, Ids]):
    """Wrap a text world so that observations and actions are token ids.

    The observation is the whole context as the model must see it, ending in the generation prompt. The action is the
    turn exactly as sampled, with or without its stop token; it stands in the next observation id for id.

    Args:
        world: A text engine, or any Gymnasium environment with string observations and actions; or what makes one: a
            class, a function, a `functools.partial`, a name that `gym.make` knows.
        chat: Tokenizer and template.
        prompting: `"transcript"` (one growing conversation), `"react"` (another one), `"step"` (a fresh prompt each
            step), or your own.
        words: The wording of the presets.
        max_steps: Steps after which the episode is truncated.
        max_context: Most ids of an observation; the episode is truncated where the next one would be longer.
        max_action: Most ids of an action.
        max_observation_tokens: Shorten a longer world text in its middle; None keeps every text whole.
        isolation: `"process"` runs the world in a process of its own: one that hangs, dies or floods ends its episode
            with a `WorldError`, and nothing else. `"none"` runs it in this process. None isolates what makes a foreign
            world, and leaves instances and the library's own worlds here.
        world_timeout_s: Seconds that an isolated world has for each answer.
        render_mode: `"ansi"` shows the text of the context.

    Raises:
        ConfigError: An option cannot work, the world is none, or the prompting needs tools and the template has no word
            for calls.
        UnknownName: The world is a name that `gym.make` does not know.
        WorldError: The world could not be made in a process of its own.
    """

    presets: ClassVar[Presets] = PRESETS
    """Makes promptings by their names."""
    labels: ClassVar[Mapping[str, str]] = {}
    """Names of the kinds of task in tables, in their order; a part of a task's id is its kind."""
    metrics: ClassVar[Mapping[str, str]] = {}
    """Headings of the world's further scores, from 0 to 1, by their names in `info`."""
    explorer: ClassVar[type[Explorer] | None] = None
    """The class of players who decide by the world's texts alone, where somebody has written one for this world."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012  # Gymnasium's own protocol

    def __init__(
        self,
        world: World,
        chat: ChatFormat,
        prompting: str | Prompting = "transcript",
        *,
        words: Words = PLAIN_WORDS,
        max_steps: int = 50,
        max_context: int = 32_768,
        max_action: int = 8_192,
        max_observation_tokens: int | None = None,
        isolation: Isolation | None = None,
        world_timeout_s: float = 60.0,
        render_mode: str | None = None,
    ) -> None:
        if not isinstance(chat, ChatFormat):
            fix = "pass ChatFormat.builtin() or ChatFormat.from_pretrained(...)"
            raise ConfigError("this is no chat format", where="TokenEnv: chat", got=repr(chat), fix=fix)
        if render_mode not in {None, "ansi"}:
            raise unknown_name("render mode", render_mode, ["ansi"], where="render_mode")
        smallest = min(max_steps, max_context, max_action, max_observation_tokens or 16)
        if smallest < 1 or (max_observation_tokens or 16) < 16:
            raise ConfigError(
                "limits must be positive, and a shortened text keeps at least 16 tokens",
                where="TokenEnv",
                got=f"{max_steps=}, {max_context=}, {max_action=}, {max_observation_tokens=}",
            )
        self.engine = world_engine(world, isolation, world_timeout_s)
        self.chat = chat
        self.prompting = make_prompting(prompting, words, self.presets)
        if self.prompting.tools and not chat.writes_calls(with_text=False):
            raise ConfigError(
                "the template has no word for tool calls",
                where=chat.reference,
                got=f"prompting {self.prompting.name!r}, which needs them",
                fix="choose another prompting, such as react",
            )
        self.max_steps, self.max_context = max_steps, max_context
        self.max_action = max_action
        self.max_observation_tokens = max_observation_tokens
        self.render_mode = render_mode
        self.observation_space = TokenSpace(chat.vocab_size, max_context)
        self.action_space = TokenSpace(chat.vocab_size, max_action, min_length=1)
        self._context: Context | None = None
        self._messages: list[Message] = []
        self._history: list[Exchange] = []
        self._observation = TextObservation("")
        self._shown = ""
        self._task: Mapping[str, Any] = {}
        self._running = False
        self._explorer: Explorer | None = None
        self._told = 0  # exchanges that the explorer knows

    # ---- Gymnasium

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Ids, dict[str, Any]]:
        """Start a task.

        Args:
            seed: Seed of the choice of the task; None goes on with the running generator.
            options: `{"task": id}` or `{"task": index}` chooses the task.

        Returns:
            The first context, and `info`.

        Raises:
            UnknownName: No task, or no option, has this name.
            ConfigError: The first prompt alone is longer than `max_context`, or the world's facts take names that
                `info` has already.
        """
        super().reset(seed=seed)
        self._running = False
        self._observation = self.engine.reset(self._choose(options or {}))
        self._task = self.engine.task_info()
        self._history = []
        self._explorer = None
        shown, cut = self._shorten(self._observation)
        self._shown = shown.text
        self._messages = self.prompting.open(shown, self._task)
        context = self.chat.open(self._messages, self.prompting.tools)
        if len(context) > self.max_context:
            raise ConfigError(
                "the first prompt does not fit",
                where=f"task {self._task['task']}",
                got=f"{len(context)} tokens",
                expected=f"at most max_context={self.max_context}",
                fix="raise max_context, or set max_observation_tokens",
            )
        self._context = context
        info = self._info(context.span, self._messages, None, cut)
        self._running = True
        return context.ids.copy(), info

    def step(self, action: Ids) -> tuple[Ids, float, bool, bool, dict[str, Any]]:
        """Give the world one turn.

        Args:
            action: int [T], the ids as sampled, with or without a stop token.

        Returns:
            The next context, the world's raw reward, terminated, truncated, and `info`.

        Raises:
            ResetNeeded: There was no reset, or the episode is over.
            InvalidAction: The action is empty or too long, or is not the turn that the adopted context ends in.
            InvalidIds: The ids have a wrong type, shape or range. After any of these the environment is as before.
            WorldError: The world failed. After any error that leaves the environment not `running`, it must be reset.
        """
        turn = self._turn(action)
        message = self.chat.parse(turn.span.ids_T, turn.root.tools)
        command = self.prompting.read(message)
        self._running = False  # until the step is whole: from here on the world has moved
        observation = self._observation = self.engine.step(command.text)
        self._history.append(Exchange(self._shown, command))
        shown, cut = self._shorten(observation)
        self._shown = shown.text
        messages = self.prompting.follow(shown, self._task, self._history)
        context, messages, edge, refusal = self._next(turn, messages, message.message())
        delta = context.span
        overflow = len(context) > self.max_context
        if overflow:
            # The world has moved, but no policy can be asked any more: the last context stands.
            context, delta, messages = turn.parent or turn, _NOTHING, []
        truncation = None if observation.terminated else self._truncation(observation, overflow=overflow)
        self._context = context
        info = self._info(delta, messages, command, cut)
        info["edge"], info["truncation"] = (None if overflow else edge), truncation
        if refusal is not None and not overflow:
            info["refusal"] = refusal.reason
        self._running = not (observation.terminated or truncation)
        # A copy: Gymnasium promises its users arrays that no later step shares.
        return context.ids.copy(), observation.reward, observation.terminated, truncation is not None, info

    def render(self) -> str | None:
        """Return the text of the context in mode `ansi`."""
        return self.chat.decode(self.context.ids) if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Close the world, where it can be closed."""
        close = getattr(self.engine, "close", None)
        if close is not None:
            close()
        super().close()

    # ---- for harnesses

    @property
    def running(self) -> bool:
        """The next `step` reaches the world; false after an error means that the world may have moved."""
        return self._running

    @property
    def context(self) -> Context:
        """The context that the next turn answers.

        Raises:
            ResetNeeded: There was no reset.
        """
        if self._context is None:
            raise ResetNeeded("the environment has no context yet", where="TokenEnv", fix="call reset first")
        return self._context

    @property
    def observation(self) -> TextObservation:
        """What the world said last, whole."""
        return self._observation

    @property
    def conversation(self) -> tuple[Message, ...]:
        """The messages that the context stands for, all of them, for people and for rendering anew."""
        return tuple(self._messages)

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings at which the prompting wants turns to end, for `Sampling.stop`; empty where it names none."""
        return tuple(getattr(self.prompting, "stop", ()))

    def adopt(self, context: Context, messages: Sequence[Message] | None = None) -> None:
        """Go on from another context: rewritten by a harness, or with a turn that carries more than its ids.

        Args:
            context: It ends in a generation prompt, or already in the turn that the next `step` will get; the turn's
                log-probabilities and origin then stay with it.
            messages: The conversation that the context stands for, where it was rewritten: a later step that cannot be
                bridged is rendered from it. None keeps the known one.

        Raises:
            FingerprintMismatch: The context belongs to another chat format.
            ResetNeeded: No episode is running.
        """
        self._require_running()
        self.chat.check(context)
        self._context = context
        if messages is not None:
            self._messages = list(messages)

    def clone(self) -> Self:
        """Copy the environment in mid-episode; contexts are shared, worlds go on independently.

        Raises:
            CloneUnsupported: The world cannot copy its state.
        """
        twin = copy.copy(self)
        twin.engine = self.engine.clone()
        twin._history = self._history.copy()
        twin._messages = self._messages.copy()
        twin._explorer = None  # the twin's own one will be told of all exchanges again
        if self._np_random is not None:
            twin._np_random = copy.deepcopy(self._np_random)
        return twin

    def hints(self) -> dict[str, Any]:
        """Return what experts may know, as turns for `ChatFormat.encode_turn`.

        Returns:
            `expert` is what the world's own expert would do, who may know what nobody was told; `explorer` what a
            player would do who has the texts of this episode only, as they were shown; each None where nobody knows a
            way on. The explorer alone thinks aloud. `admissible` holds all that the world would accept.
        """
        answer = self.prompting.answer
        expert = self.engine.expert_command()
        return {
            "expert": None if expert is None else answer(expert),
            "explorer": self._explore(),
            "admissible": tuple(answer(choice) for choice in self._observation.admissible_commands),
        }

    # ---- inside

    def _explore(self) -> str | Message | None:
        """Tell the explorer what came since it was asked last, and ask it for a turn."""
        make = type(self).explorer
        if make is None:
            return None
        texts = [*(exchange.observation for exchange in self._history), self._shown]
        explorer = self._explorer
        if explorer is None:
            explorer, self._told = make(), 0
            explorer.reset(texts[0])
        for exchange, text in zip(self._history[self._told :], texts[self._told + 1 :], strict=True):
            explorer.follow(exchange.command.text, text)
        self._explorer, self._told = explorer, len(self._history)
        command = explorer.act()
        return None if command is None else expert_turn(self.prompting, command, explorer.thought)

    def _require_running(self) -> None:
        if not self._running:
            raise ResetNeeded(
                "no episode is running",
                where=type(self).__name__,
                got="step before reset, or after the end or the failure of the episode",
                fix="call reset",
            )

    def _choose(self, options: Mapping[str, Any]) -> str:
        for name in options:
            if name != "task":
                raise unknown_name("reset option", name, ["task"], where="options")
        task = options.get("task")
        if isinstance(task, str):
            return task  # the others are not even listed
        tasks = self.engine.tasks()
        if task is None:
            return tasks[int(self.np_random.integers(len(tasks)))]
        # True is no index, though Python counts it as 1.
        if not isinstance(task, (int, np.integer)) or isinstance(task, bool) or not 0 <= task < len(tasks):
            raise UnknownName(
                "unknown task",
                where="options['task']",
                got=repr(task),
                expected=f"an id, or an index from 0 to {len(tasks) - 1}",
                fix=f"ids are such as {tasks[0]!r}",
            )
        return tasks[int(task)]

    def _turn(self, action: Ids) -> Context:
        """Return the context that ends in the action."""
        self._require_running()
        ids_T = as_ids(action, where="action", vocab_size=self.chat.vocab_size)
        if not 1 <= len(ids_T) <= self.max_action:
            raise InvalidAction(
                "an action needs ids, and not too many",
                where="action",
                got=f"{len(ids_T)} ids",
                expected=f"1 to {self.max_action}",
                fix="a policy that says nothing still says its stop token; raise max_action for longer turns",
            )
        context = self.context
        if context.span.origin not in TURN_ORIGINS:
            return context.sampled(ids_T)
        if not np.array_equal(context.span.ids_T, ids_T):
            raise InvalidAction(
                "the adopted context ends in another turn",
                where="action",
                got=f"{len(ids_T)} ids",
                expected=f"the {len(context.span)} ids of the adopted turn",
            )
        return context

    def _truncation(self, observation: TextObservation, *, overflow: bool) -> str | None:
        if overflow:
            return "context"
        if observation.truncated:
            return "world"
        return "steps" if len(self._history) >= self.max_steps else None

    def _next(
        self, turn: Context, messages: list[Message], said: Message
    ) -> tuple[Context, list[Message], str, Refusal | None]:
        """Return the next context, what came, the kind of its edge, and why it was rendered anew, if it was."""
        if self.prompting.fresh:
            self._messages = messages
            return self.chat.open(messages, self.prompting.tools), messages, "fresh_prompt", None
        bridged = self.chat.bridge(turn, messages)
        if isinstance(bridged, Refusal) and bridged.reason == "closed_turn":
            # The policy ended the turn that the text should go on in: then it comes as a user's message.
            messages = [replace(message, role="user") if message.role == INLINE else message for message in messages]
            bridged = self.chat.bridge(turn, messages)
        self._messages += [said, *messages]
        if isinstance(bridged, Refusal):
            return self.chat.open(self._messages, turn.root.tools), messages, "rerender", bridged
        return bridged, messages, "continuation", None

    def _shorten(self, observation: TextObservation) -> tuple[TextObservation, int]:
        limit = self.max_observation_tokens
        return (observation, 0) if limit is None else shorten(self.chat, observation, limit)

    def _info(self, delta: Span, messages: list[Message], command: Command | None, cut: int) -> dict[str, Any]:
        observation = self._observation
        # Python's own booleans would turn None into False where vector environments collect them in one array.
        info: dict[str, Any] = {
            "text": observation.text,
            "messages": tuple(messages),
            "action_text": None if command is None else command.text,
            "format_ok": None if command is None else np.bool_(command.format_ok),
            "valid_action": None if observation.valid is None else np.bool_(observation.valid),
            "success": observation.success,
            "context_digest": self.context.digest,
            "delta": delta,
            "edge": None,
            "truncation": None,
            "admissible_commands": observation.admissible_commands,
        }
        if cut:
            info["shortened"] = cut
        facts = {**self._task, **observation.facts}
        taken = facts.keys() & (info.keys() | _SOMETIMES) or self._task.keys() & observation.facts.keys()
        if taken:
            raise ConfigError(
                "the world's facts take names that are taken",
                where=f"task_info and facts of {self.engine.source}",
                got=", ".join(sorted(taken)),
                fix="give them other names",
            )
        return info | facts
