"""`builtin`: the policy whose weights ship with the package, one model for all worlds or one for each."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt, PositiveInt, ValidationError

from agentgym_tok.chat import ChatFormat
from agentgym_tok.config import Config
from agentgym_tok.errors import ConfigError, DataCorrupt, DataMissing, FingerprintMismatch, PolicyError, unknown_name
from agentgym_tok.policies.base import BasePolicy, Listen
from agentgym_tok.policies.small.policy import NumpyPolicy
from agentgym_tok.tokens import Ids
from agentgym_tok.types import Completion, Request, ScoreRequest, Scores

__all__ = ["About", "BuiltinPolicy"]

_WEIGHTS = Path(__file__).parent / "weights"

_OPENING = 256
"""So many ids of a context are read to find out what it is about."""


class About(Config):
    """Say what a folder of weights is for; its `about.json`.

    Args:
        fingerprint: `ChatFormat.fingerprint` of the ids that the model was trained on.
        openings: Texts, one of which stands at the beginning of what the model knows; without any it takes everything.
    """

    fingerprint: str
    openings: tuple[str, ...] = ()


class BuiltinPolicy(BasePolicy):
    """Answer by the weights that ship with the package, and choose them by how a context begins.

    Each is a folder `weights/NAME` with `config.json`, `model.safetensors`, `about.json` and `card.md`, which says how
    it was made. What holds for `NumpyPolicy` holds here.

    Args:
        target: Nothing: the name stands for itself.
        chat: The builtin format.
        world: Name of the one folder to use, such as `alfworld`; None chooses for each request.
        batch_size: Most turns that are drawn at once.
        version: The weights' label on every token; None takes the first digits of their SHA-256.
        cache_bytes: Most bytes of keys and values kept between turns, of each model.

    Raises:
        ConfigError: The name goes on behind a colon.
        FingerprintMismatch: The chat format is another one than the weights were trained on.
        UnknownName: No weights have this name.
        DataMissing: There are none at all.
        DataCorrupt: They are broken.
    """

    name = "builtin"
    listens = True

    def __init__(
        self,
        target: str,
        chat: ChatFormat,
        *,
        world: str | None = None,
        batch_size: PositiveInt = 64,
        version: str | None = None,
        cache_bytes: NonNegativeInt = 2**30,
    ) -> None:
        if target:
            fix = f"write builtin?world={target}"
            raise ConfigError("builtin takes no path", where="policy", got=f"builtin:{target}", fix=fix)
        folders = {file.parent.name: file.parent for file in sorted(_WEIGHTS.glob("*/about.json"))}
        if not folders:
            raise DataMissing("no weights ship with this package", where=str(_WEIGHTS), fix="install a released one")
        if world is not None and world not in folders:
            raise unknown_name("world", world, folders, where="policy builtin")
        self._chat = chat
        self._players: list[tuple[About, NumpyPolicy]] = []
        for folder in folders.values() if world is None else [folders[world]]:
            about = _about(folder, chat)
            label = version or hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()[:12]
            player = NumpyPolicy(folder, chat, batch_size=batch_size, version=label, cache_bytes=cache_bytes)
            player.name = f"builtin:{folder.name}"
            # Whoever names the weights knows what they are for.
            self._players.append((about if world is None else About(fingerprint=about.fingerprint), player))
        self.fingerprint = chat.fingerprint
        self.deterministic = all(player.deterministic for _, player in self._players)
        self.context_limit = min(player.context_limit or 0 for _, player in self._players)

    def generate(self, requests: Sequence[Request], listen: Listen | None = None) -> list[Completion | Exception]:
        """Answer a batch, in order; see `NumpyPolicy.generate`.

        Returns:
            The turns; a `PolicyError` in the place of one whose context begins like nothing that the weights know.
        """
        answers: list[Completion | Exception] = [self._stranger()] * len(requests)
        chosen = [self._player(request.ids_T) for request in requests]
        for _, player in self._players:
            places = [place for place, one in enumerate(chosen) if one is player]
            turns = player.generate([requests[place] for place in places], listen)
            for place, turn in zip(places, turns, strict=True):
                answers[place] = turn
        return answers

    def score(self, requests: Sequence[ScoreRequest]) -> list[Scores]:
        """Score each sequence by the weights that know how it begins.

        Raises:
            PolicyError: None do, a sequence is longer than the model's context, or a logit is not a number.
        """
        scores: list[Scores] = []
        for request in requests:
            player = self._player(request.ids_T)
            if player is None:
                raise self._stranger()
            scores += player.score([request])
        return scores

    def update_weights(self, state: Any, version: str) -> None:
        """Put new weights in the place of the shipped ones; see `NumpyPolicy.update_weights`.

        Raises:
            PolicyError: There are several models, or these are not its weights.
        """
        if len(self._players) > 1:
            raise PolicyError(
                "nobody says which weights these are to replace",
                where=self.name,
                got=[player.name for _, player in self._players],
                expected="one model",
                fix="name it, such as builtin?world=alfworld",
            )
        self._players[0][1].update_weights(state, version)

    def _player(self, ids_T: Ids) -> NumpyPolicy | None:
        text = self._chat.decode(ids_T[:_OPENING])
        for about, player in self._players:
            if not about.openings or any(opening in text for opening in about.openings):
                return player
        return None

    def _stranger(self) -> PolicyError:
        return PolicyError(
            "the shipped weights know no such task",
            where=self.name,
            got="a context that begins like none of theirs",
            expected=f"one for {', '.join(player.name for _, player in self._players)}",
            fix="name the weights, such as builtin?world=alfworld, or use another policy",
        )


def _about(folder: Path, chat: ChatFormat) -> About:
    file = folder / "about.json"
    try:
        about = About.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise DataCorrupt("what weights are for cannot be read", where=str(file), got=str(error)) from error
    if about.fingerprint != chat.fingerprint:
        raise FingerprintMismatch(
            "the shipped weights were trained on another chat format",
            where=str(file),
            got=repr(chat),
            expected=about.fingerprint[:16],
            fix="use ChatFormat.builtin()",
        )
    return about
