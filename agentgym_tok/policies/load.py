"""Policies by name: `expert`, `hf:PATH`, `vllm:URL#MODEL`, `python:module:function`, a plug-in's, or any callable."""

import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

from agentgym_tok.chat import ChatFormat
from agentgym_tok.errors import ConfigError
from agentgym_tok.plugins import find_plugin
from agentgym_tok.policies.base import CallablePolicy
from agentgym_tok.policies.expert import ExpertPolicy, ExplorerPolicy, RandomPolicy
from agentgym_tok.policies.options import checked_options, split_options
from agentgym_tok.types import Policy

__all__ = ["POLICIES", "load_policy"]


_Maker: TypeAlias = Callable[..., Policy]
"""Gets what stands behind the colon, and the chat format; its keyword-only parameters are the options."""


def _class(module: str, name: str) -> Callable[[], _Maker]:
    """Return what imports a class when it is needed: its extra may not be installed."""

    def found() -> _Maker:
        made: _Maker = getattr(importlib.import_module(module), name)
        return made

    return found


def _expert(_: str, chat: ChatFormat) -> Policy:
    return ExpertPolicy(chat)


def _explorer(_: str, chat: ChatFormat) -> Policy:
    return ExplorerPolicy(chat)


def _random(_: str, chat: ChatFormat) -> Policy:
    return RandomPolicy(chat)


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


POLICIES: dict[str, Callable[[], _Maker]] = {
    "expert": lambda: _expert,
    "explorer": lambda: _explorer,
    "random": lambda: _random,
    "builtin": _class("agentgym_tok.policies.small.builtin", "BuiltinPolicy"),
    "numpy": _class("agentgym_tok.policies.small.policy", "NumpyPolicy"),
    "hf": _class("agentgym_tok.policies.hf", "HFPolicy"),
    "vllm": _class("agentgym_tok.policies.http.vllm", "VLLMPolicy"),
    "vllm-offline": _class("agentgym_tok.policies.vllm_offline", "VLLMOfflinePolicy"),
    "openai": _class("agentgym_tok.policies.http.openai", "OpenAIPolicy"),
    "llamacpp": _class("agentgym_tok.policies.llamacpp", "LlamaCppPolicy"),
    "python": lambda: _python,
}
"""What makes policies, by the name before the colon."""

_MEMBERS = ("name", "deterministic", "wants_info", "generate", "stream")
"""What the protocol `Policy` asks for."""


def load_policy(policy: "str | Policy | Callable[..., Any]", chat: ChatFormat) -> Policy:
    """Return the policy of a name, a policy as it is, or a callable as a policy.

    Args:
        policy: `"expert"`, `"explorer"`, `"random"`, `"hf:PATH"`, `"vllm:URL#MODEL"`, `"openai:URL#MODEL"`,
            `"llamacpp:PATH"`, `"vllm-offline:PATH"`, `"python:module:function"`, `"NAME:..."` of a plug-in, a `Policy`,
            or `ids -> ids`. A name may end in options, the keyword-only ones of its class:
            `"hf:PATH?batch_size=8&device=cpu"`.
        chat: The chat format that it talks in.

    Raises:
        UnknownName: No policy has this name, or the policy has no such option.
        ConfigError: It is neither a name nor a whole policy nor callable, or it is a class; or an option is unreadable,
            or a plug-in is broken.
        MissingExtra: Its packages are not installed.
    """
    if isinstance(policy, str):
        name, options = split_options(policy)
        kind, _, target = name.partition(":")
        if kind not in POLICIES:
            return _of_plugin(kind, target, options, chat)
        made = POLICIES[kind]()
        return made(target, chat, **checked_options(made, options, f"policy {kind}"))
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


def _of_plugin(kind: str, target: str, options: dict[str, str], chat: ChatFormat) -> Policy:
    plugin = find_plugin("policy", kind, POLICIES, where="policy")
    make = plugin.load()
    policy = make(target, chat, **checked_options(make, options, f"policy {kind}"))
    if isinstance(policy, str):
        raise plugin.broken("a text", expected="a policy")
    try:
        return load_policy(policy, chat)
    except ConfigError as error:
        raise plugin.broken(error) from error
