"""`agentgym-tok`: the commands. Exit status 0: done, 1: failed, 2: wrong usage."""

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from agentgym_tok.cli.options import complain, parse
from agentgym_tok.errors import AgentGymTokError, ConfigError, UnknownName, unknown_name

__all__ = ["main"]

COMMANDS: dict[str, tuple[str, str]] = {
    "eval": ("evaluate", "evaluate a policy on one world or several and print scores with intervals"),
    "compare": ("compare", "compare evaluations task by task: differences, intervals, tasks that flipped"),
    "report": ("report", "write runs as a page to look at, with tables and figures as files"),
    "play": ("play", "play a world yourself and see ids and spans in colour"),
    "bench": ("bench", "measure how fast a world is, beside the stock one"),
    "bench all": ("bench_all", "measure all of it, beside its peers, and write one table"),
    "bench chat": ("bench_chat", "measure bridges beside rendering a long conversation anew each turn"),
    "bench harness": ("bench_harness", "measure what the harness itself costs a turn, and its memory"),
    "bench learner": (
        "bench_learner",
        "measure an update of a group beside padded ones: tokens a second, memory",
    ),
    "bench policies": ("bench_policies", "measure a small model by numpy, beside transformers"),
    "bench proxy": ("bench_proxy", "measure the recording proxy beside other gateways: rate, latency, memory"),
    "bench scaling": ("bench_scaling", "measure how bytes and work grow with episodes, turns, contexts and workers"),
    "bench searchqa": ("bench_searchqa", "measure retrievers: queries a second, and recall of gold passages"),
    "bench trace": ("bench_trace", "measure what a trace costs: bytes, and turns a second"),
    "bench webshop": ("bench_webshop", "measure steps, searches and memory of a small or a large shop"),
    "bench weights": ("bench_weights", "measure how little of a model a training step changes, and sending that"),
    "proxy": ("proxy", "record unmodified agents: OpenAI's and Anthropic's protocols in front of a policy"),
    "train": ("train", "train a policy on a world, by any published objective; presets of the paper"),
    "trace show": ("trace_show", "list a trace's episodes, or one episode turn by turn"),
    "trace verify": ("trace_verify", "prove a trace: laws, hash chain, accounting"),
    "trace rescore": ("trace_rescore", "prove logged log-probabilities by a model's own"),
    "trace redact": ("trace_redact", "copy a trace without its secrets"),
    "trace export": ("trace_export", "write a trace as JSONL, Parquet or training rows"),
    "trace import": ("trace_import", "make a trace of a JSONL log or Parquet files again"),
    "trace merge": ("trace_merge", "copy several traces into one"),
    "trace prune": ("trace_prune", "copy a trace without some of its rollouts"),
    "trace view": ("trace_view", "write a trace as one HTML file to look at, and serve it on loopback"),
    "doctor": ("doctor", "examine an engine before anything else: ids, log-probabilities, sampling, stops"),
    "drift": ("drift", "measure what a text pipeline would have trained on instead"),
    "data get": ("data_get", "download a world's official data"),
    "data generate": ("data_generate", "write generated games in the official format"),
    "data generate webshop": ("data_generate_webshop", "write a generated shop in the official format"),
    "data prepare searchqa": ("data_prepare_searchqa", "check questions, and store and index a corpus"),
    "data prepare webshop": ("data_prepare_webshop", "make the official files ready to be opened at once"),
    "serve-retriever": ("serve_retriever", "serve a corpus at Search-R1's /retrieve"),
    "list": ("list_names", "list worlds, splits, policies and chat formats"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: Arguments without the program's name; None takes the process's own.

    Returns:
        The exit status.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if argv is None and not sys.flags.safe_path:
        # For `python:module:function`, whose module lies where the user is; behind all that is installed.
        sys.path.append(str(Path.cwd()))
    try:
        name, rest = _command(arguments)
        if name is None:
            return 0
        module = importlib.import_module(f"agentgym_tok.cli.{COMMANDS[name][0]}")
        config = parse(module.Options, rest, program=f"agentgym-tok {name}")
        status: int = module.run(config)
    except (ConfigError, UnknownName) as error:
        complain(error)
        return 2
    except AgentGymTokError as error:
        complain(error)
        return 1
    except SystemExit as stop:  # from the argument parser: after --help, or for an unknown option
        return stop.code if isinstance(stop.code, int) else 2
    except BrokenPipeError:  # the reader of the output went away: `... | head`
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _command(arguments: list[str]) -> tuple[str | None, list[str]]:
    """Return the command's name and what stands behind it; None after showing the help."""
    if not arguments or arguments[0] in {"-h", "--help", "help"}:
        print(_help())
        return None, []
    if arguments[0] == "--version":
        from agentgym_tok import __version__  # noqa: PLC0415

        print(__version__)
        return None, []
    for words in (3, 2, 1):
        name = " ".join(arguments[:words])
        if name in COMMANDS:
            return name, arguments[words:]
    asked = " ".join(arguments[:2]) if any(known.startswith(f"{arguments[0]} ") for known in COMMANDS) else arguments[0]
    raise unknown_name("command", asked, COMMANDS, where="agentgym-tok")


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(["usage: agentgym-tok COMMAND [OPTIONS]", "", *lines, "", "COMMAND --help shows its options."])


if __name__ == "__main__":
    raise SystemExit(main())
