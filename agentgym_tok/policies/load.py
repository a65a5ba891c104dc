"""Policies by name: `expert`, `random`, `hf:PATH`, `vllm:URL#MODEL`, `python:module:function`, or any callable."""

import importlib
from collections.abc import Callable
from typing import Any

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ConfigError, unknown_name
from agentgym_tok.policies.base import CallablePolicy
from agentgym_tok.policies.expert import ExpertPolicy, RandomPolicy
from agentgym_tok.types import Policy

__all__ = ["POLICIES", "load_policy"]


def _hf(path: str, chat: ChatFormat) -> Policy:
    from agentgym_tok.policies.hf import HFPolicy  # noqa: PLC0415  # extra `torch`

    return HFPolicy(path, chat)


def _vllm(target: str, chat: ChatFormat) -> Policy:
    from agentgym_tok.policies.http.vllm import VLLMPolicy  # noqa: PLC0415  # extra `engines`

    return VLLMPolicy(target, chat)


def _openai(target: str, chat: ChatFormat) -> Policy:
    from agentgym_tok.policies.http.openai import OpenAIPolicy  # noqa: PLC0415  # extra `engines`

    return OpenAIPolicy(target, chat)


def _python(target: str, chat: ChatFormat) -> Policy:
    module, _, name = target.partition(":")
    if not module or not name:
        raise ConfigError(
            "a Python policy is named by module and function",
            where="policy",
            got=f"python:{target}",
            expected="python:module:function",
        )
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            "the Python policy cannot be imported",
            where=f"python:{target}",
            got=str(error),
            fix="check the name, and that the module's folder is on PYTHONPATH",
        ) from error
    return load_policy(found, chat)


POLICIES: dict[str, Callable[[str, ChatFormat], Policy]] = {
    "expert": lambda _, chat: ExpertPolicy(chat),
    "random": lambda _, chat: RandomPolicy(chat),
    "hf": _hf,
    "vllm": _vllm,
    "openai": _openai,
    "python": _python,
}
"""Makers of policies, by the name before the colon; each gets what stands behind it, and the chat format."""

_MEMBERS = ("name", "deterministic", "wants_info", "generate", "stream")
"""What the protocol `Policy` asks for."""


def load_policy(policy: "str | Policy | Callable[..., Any]", chat: ChatFormat) -> Policy:
    """Return the policy of a name, a policy as it is, or a callable as a policy.

    Args:
        policy: `"expert"`, `"random"`, `"hf:PATH"`, `"vllm:URL#MODEL"`, `"openai:URL#MODEL"`,
            `"python:module:function"`, a `Policy`, or `ids -> ids`.
        chat: The chat format that it talks in.

    Raises:
        UnknownName: No policy has this name.
        ConfigError: It is neither a name nor a whole policy nor callable, or it is a class.
        MissingExtra: Its packages are not installed.
    """
    if isinstance(policy, str):
        kind, _, rest = policy.partition(":")
        if kind not in POLICIES:
            raise unknown_name("policy", policy, POLICIES, where="policy")
        return POLICIES[kind](rest, chat)
    if isinstance(policy, type):
        raise ConfigError(
            "a class is no policy",
            where="policy",
            got=policy.__name__,
            expected="a policy that was made",
            fix=f"make one, such as {policy.__name__}(chat), and pass that, or name the variable that holds it",
        )
    if isinstance(policy, Policy):
        return policy
    if hasattr(policy, "generate"):
        missing = [member for member in _MEMBERS if not hasattr(policy, member)]
        raise ConfigError(
            "the policy is not whole",
            where="policy",
            got=f"{type(policy).__name__} without {', '.join(missing)}",
            expected=", ".join(_MEMBERS),
            fix="inherit agentgym_tok.policies.BasePolicy, which has all but the answers",
        )
    if callable(policy):
        return CallablePolicy(policy, chat)
    raise ConfigError(
        "this is no policy", where="policy", got=type(policy).__name__, expected="a name, Policy or callable"
    )
