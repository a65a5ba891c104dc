"""Chat formats of every dialect: small templates that write reasoning and calls as its models' own do."""

# ruff: noqa: RUF001  # DeepSeek's tokens are written with this bar

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources

import pytest
import tokenizers

from agentgym_tok import ChatFormat
from agentgym_tok.chat.dialects import DIALECTS
from agentgym_tok.chat.template import ChatTemplate
from agentgym_tok.chat.tokenizer import Tokenizer

OPEN = """
{%- for message in messages %}
{%- if message.role == 'user' %}{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>assistant\\n' }}"""
THINK = """
{%- if message.reasoning_content %}{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}"""
CALLS = """
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}{% set call = call.function %}"""
CLOSE = """
{%- endfor %}{{- '<|im_end|>\\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""

HERMES = """
{{- '\\n<tool_call>\\n' + ({'name': call.name, 'arguments': call.arguments} | tojson) + '\\n</tool_call>' }}"""

# Qwen3.5 writes scalars as Python does, Qwen3.8 as JSON does.
QWEN_XML = """
{{- '\\n<tool_call>\\n<function=' + call.name + '>\\n' }}
{%- for key, value in call.arguments.items() %}
{{- '<parameter=' + key + '>\\n' }}
{{- (value | tojson) if value is mapping or (value is sequence and value is not string) else SCALAR }}
{{- '\\n</parameter>\\n' }}{% endfor %}{{- '</function>\\n</tool_call>' }}"""
PYTHON_WORDS = "(value | string)"
JSON_WORDS = "(value if value is string else value | tojson)"

GLM = """
{{- 'NL<tool_call>' + call.name + 'NL' }}
{%- for key, value in call.arguments.items() %}
{{- '<arg_key>' + key + '</arg_key>NL<arg_value>' + (value if value is string else value | tojson) + '</arg_value>NL' }}
{%- endfor %}{{- '</tool_call>' }}"""

LLAMA = """
{{- '{"name": "' + call.name + '", "parameters": ' + (call.arguments | tojson) + '}' }}{{- '; ' if not loop.last }}"""

FENCED = """
{{- '<｜tool▁calls▁begin｜>' if loop.first else '\\n' }}
{{- '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + call.name + '\\n```json\\n' + call.arguments + '\\n```' }}
{{- '<｜tool▁call▁end｜>' }}{{- '<｜tool▁calls▁end｜>' if loop.last }}"""
BARE = """
{{- '<｜tool▁calls▁begin｜>' if loop.first }}
{{- '<｜tool▁call▁begin｜>' + call.name + '<｜tool▁sep｜>' + (call.arguments | tojson) + '<｜tool▁call▁end｜>' }}
{{- '<｜tool▁calls▁end｜>' if loop.last }}"""

KIMI = """
{{- '<|tool_calls_section_begin|>' if loop.first }}
{{- '<|tool_call_begin|>functions.' + call.name + ':' + (loop.index0 | string) + '<|tool_call_argument_begin|>' }}
{{- (call.arguments | tojson) + '<|tool_call_end|>' }}{{- '<|tool_calls_section_end|>' if loop.last }}"""

ARRAY = """
{{- '[TOOL_CALLS][' if loop.first }}
{{- {'name': call.name, 'arguments': call.arguments, 'id': 'abcdefgh' + (loop.index0 | string)} | tojson }}
{{- ']' if loop.last else ', ' }}"""
ONE_BY_ONE = """
{{- '[TOOL_CALLS]' + call.name + '[CALL_ID]abcdefgh' + (loop.index0 | string) }}
{{- '[ARGS]' + (call.arguments | tojson) }}"""
NAME_AND_JSON = "{{- '[TOOL_CALLS]' + call.name + (call.arguments | tojson) }}"
BRACKETS = """
{%- if message.reasoning_content %}{{- '[THINK]' + message.reasoning_content + '[/THINK]' }}{% endif %}"""

GEMMA = """
{%- macro write(value) %}
{%- if value is none %}null
{%- elif value is string %}{{- '<|"|>' + value + '<|"|>' }}
{%- elif value is boolean %}{{- value | tojson }}
{%- elif value is mapping %}{{- '{' }}
{%- for key, inner in value | dictsort %}{{- key + ':' + write(inner) }}{{- ',' if not loop.last }}{% endfor %}
{{- '}' }}
{%- elif value is sequence %}{{- '[' }}
{%- for inner in value %}{{- write(inner) }}{{- ',' if not loop.last }}{% endfor %}{{- ']' }}
{%- else %}{{- value }}{% endif %}{% endmacro %}"""
CHANNEL = """
{%- if message.reasoning_content %}
{{- '<|channel>thought\\n' + message.reasoning_content + '\\n<channel|>' }}{% endif %}"""
GEMMA_CALL = "{{- '<|tool_call>call:' + call.name + write(call.arguments) + '<tool_call|>' }}"

HARMONY = """
{%- for message in messages %}
{%- if message.role == 'user' %}{{- '<|start|>user<|message|>' + message.content + '<|end|>' }}
{%- else %}
{%- if message.reasoning_content %}
{{- '<|start|>assistant<|channel|>analysis<|message|>' + message.reasoning_content + '<|end|>' }}{% endif %}
{%- if message.content %}
{{- '<|start|>assistant<|channel|>' + ('commentary' if message.tool_calls else 'final') + '<|message|>' }}
{{- message.content + ('<|end|>' if message.tool_calls else '<|return|>') }}{% endif %}
{%- for call in message.tool_calls or [] %}{% set call = call.function %}{{- '<|start|>assistant' }}HEADER
{{- '<|message|>' + (call.arguments | tojson) + '<|call|>' }}{% endfor %}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{% endif %}"""
RECIPIENT_LAST = "{{- '<|channel|>commentary to=functions.' + call.name + ' <|constrain|>json' }}"
RECIPIENT_FIRST = "{{- ' to=functions.' + call.name + '<|channel|>commentary json' }}"


@dataclass(frozen=True)
class Family:
    """Hold what stands in for the models of one dialect.

    Args:
        dialect: The dialect that must be found.
        template: Writes it.
        stops: Its stop tokens.
        single: A turn holds one call at most.
    """

    dialect: str
    template: str
    stops: tuple[str, ...] = ("<|im_end|>",)
    single: bool = False


def chatml(call: str, think: str = THINK, before: str = "") -> str:
    return before + OPEN + think + CALLS + call + CLOSE


HARMONY_STOPS = ("<|return|>", "<|call|>")
FAMILIES = {
    "hermes": Family("hermes", chatml(HERMES)),
    "qwen_xml": Family("qwen_xml", chatml(QWEN_XML.replace("SCALAR", PYTHON_WORDS))),
    "qwen_xml_json": Family("qwen_xml", chatml(QWEN_XML.replace("SCALAR", JSON_WORDS))),
    "glm": Family("glm", chatml(GLM.replace("NL", "\\n"))),
    "glm_compact": Family("glm", chatml(GLM.replace("NL", ""))),
    "llama": Family("llama", chatml(LLAMA)),
    "deepseek": Family("deepseek", chatml(FENCED)),
    "deepseek_bare": Family("deepseek", chatml(BARE)),
    "kimi": Family("kimi", chatml(KIMI)),
    "mistral": Family("mistral", chatml(ARRAY, BRACKETS)),
    "mistral_named": Family("mistral", chatml(ONE_BY_ONE, BRACKETS)),
    "mistral_short": Family("mistral", chatml(NAME_AND_JSON)),
    "gemma": Family("gemma", chatml(GEMMA_CALL, CHANNEL, GEMMA)),
    "harmony": Family("harmony", HARMONY.replace("HEADER", RECIPIENT_LAST), HARMONY_STOPS, single=True),
    "harmony_first": Family("harmony", HARMONY.replace("HEADER", RECIPIENT_FIRST), HARMONY_STOPS, single=True),
}


@functools.cache
def grow(template: str, added: tuple[str, ...], stops: tuple[str, ...], dialect: str | None = None) -> ChatFormat:
    """Make a format of a template, on the builtin vocabulary and more added tokens."""
    rules = resources.files("agentgym_tok.chat") / "builtin" / "tokenizer.json"
    backend = tokenizers.Tokenizer.from_str(rules.read_text(encoding="utf-8"))
    backend.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in (*stops, *added)])
    stop_ids = [backend.token_to_id(stop) for stop in stops]
    shown = ChatTemplate(template, {"bos_token": "", "eos_token": stops[0]})
    return ChatFormat(Tokenizer(backend), shown, reference=("test",), stop_ids=stop_ids, dialect=dialect)


def delimiters(dialect: str) -> tuple[str, ...]:
    return next(known.delimiters for known in DIALECTS if known.name == dialect)


@pytest.fixture(scope="session")
def make_format() -> Callable[..., ChatFormat]:
    """Return the maker of formats."""
    return grow


@pytest.fixture(scope="session")
def families() -> Mapping[str, Family]:
    """Return all families by name."""
    return FAMILIES


@pytest.fixture(scope="session", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    """Return each family in turn."""
    return FAMILIES[request.param]


@pytest.fixture(scope="session", params=["tokens", "spelled"])
def format_of(request: pytest.FixtureRequest, family: Family) -> ChatFormat:
    """Return the family's format, on a vocabulary with the dialect's own tokens and on one without."""
    added = delimiters(family.dialect) if request.param == "tokens" else ()
    return grow(family.template, added, family.stops)


@pytest.fixture(scope="session", params=sorted({family.dialect for family in FAMILIES.values()}))
def dialect_format(request: pytest.FixtureRequest) -> ChatFormat:
    """Return one format of each dialect, on a vocabulary with its own tokens."""
    family = FAMILIES[request.param]
    return grow(family.template, delimiters(family.dialect), family.stops)
