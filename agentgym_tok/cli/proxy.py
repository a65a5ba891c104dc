"""`agentgym-tok proxy --policy POLICY --out RUN`: record unmodified agents, token by token."""

import gc
import os
import sys
import time
from pathlib import Path
from typing import Literal

from pydantic import Field

from agentgym_tok import __version__
from agentgym_tok.cli.worlds import chat_format
from agentgym_tok.config import Config
from agentgym_tok.errors import ConfigError
from agentgym_tok.proxy.limits import Limits
from agentgym_tok.trace import RunMeta, TraceStore
from agentgym_tok.types import Sampling

__all__ = ["Options", "run"]


class Options(Config):
    """Stand between agents and a policy; OpenAI chat and responses and Anthropic messages, until Ctrl-C or SIGTERM."""

    policy: str = Field(description="vllm:URL#MODEL, hf:PATH, llamacpp:PATH, python:module:function, ...")
    chat: str = Field(default="builtin", description="builtin, or a folder or id with tokenizer and template")
    out: str | None = Field(default=None, description="folder of the run; runs/proxy-TIME without it")
    host: str = Field(default="127.0.0.1", description="address to listen on; others than loopback need an admin key")
    port: int = Field(default=8100, ge=0, le=65_535, description="port; 0 takes a free one")
    mode: Literal["tokens", "engine"] = Field(
        default="tokens", description="tokens: contexts are ids that go on; engine: the engine renders, for images"
    )
    admin_key_variable: str | None = Field(default=None, description="environment variable that holds the admin key")
    any_key: bool = Field(default=False, description="any API key opens a session of its own; on loopback only")
    source: str = Field(default="", description="the name that scores carry")
    sampling: Sampling = Field(default=Sampling(max_tokens=4096), description="where a client sets no parameter")
    limits: Limits = Field(default=Limits(), description="how much is taken on")
    dry_run: bool = Field(default=False, description="show the configuration, and stop")


def run(options: Options) -> int:
    """Serve until told to stop; return 0.

    Raises:
        ConfigError: A key is missing where one is needed, or the port is taken.
        MissingExtra: The server's or the policy's packages are not installed.
    """
    from agentgym_tok.proxy import Proxy  # noqa: PLC0415  # the server's packages are an extra

    if options.dry_run:
        print(options.model_dump_json(indent=2))
        return 0
    chat = chat_format(options.chat)
    folder = Path(options.out or f"runs/proxy-{time.strftime('%Y%m%d-%H%M%S')}")
    config = options.model_dump(mode="json") | {"version": __version__}
    meta = RunMeta.of(chat, source=options.source, config=config)
    with TraceStore(folder, chat=chat, meta=meta) as store:
        for name in store.left_running():
            store.finish(name, "abandoned")  # whoever wrote them was killed
        proxy = Proxy(
            options.policy,
            chat,
            store,
            host=options.host,
            port=options.port,
            mode=options.mode,
            admin_key=_admin_key(options.admin_key_variable),
            any_key=options.any_key,
            sampling=options.sampling,
            limits=options.limits,
            source=options.source,
        )
        # What was loaded stays, and need not be looked at again while agents wait.
        gc.collect()
        gc.freeze()
        gc.set_threshold(1_000, 5, 2_000)
        proxy.run(lambda: _greet(proxy.url, proxy.admin_key, options, folder))
    print(f"agentgym-tok trace verify {folder}")
    return 0


def _admin_key(variable: str | None) -> str | None:
    if variable is None:
        return None
    if not os.environ.get(variable):
        raise ConfigError("the variable of the admin key is empty", where="proxy", got=variable)
    return os.environ[variable]


def _greet(url: str, admin_key: str, options: Options, folder: Path) -> None:
    print(f"{options.policy} at {url}, recorded in {folder}, until Ctrl-C")
    if options.any_key:
        print(f"  OPENAI_BASE_URL={url}/v1 ANTHROPIC_BASE_URL={url}, and any API key: each is a session of its own")
    else:
        key = admin_key if options.admin_key_variable is None else f"${options.admin_key_variable}"
        print(f"  a new session: curl -X POST -H 'Authorization: Bearer {key}' {url}/admin/sessions -d '{{}}'")
    sys.stdout.flush()
