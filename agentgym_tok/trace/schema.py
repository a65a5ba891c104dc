"""The one source of the format: tables and columns, from which the SQL, Arrow and JSON schemas are made.

The SQL, comments included, stands in each shard and in docs/design/trace.md, the JSON Schema in docs/trace.schema.json;
tests compare them.
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

__all__ = ["APPLICATION_ID", "BY_NAME", "FORMAT", "HEAD", "TABLES", "TURN", "Column", "Form", "Table", "ddl", "sql"]

FORMAT: Final = (1, 0)
"""Major and minor version. A reader refuses a newer major; a newer minor only adds tables or columns."""

APPLICATION_ID: Final = 0x54495443
"""Marks the SQLite file as a shard."""


Rule: TypeAlias = Literal["", "PRIMARY KEY", "NOT NULL", "NOT NULL UNIQUE"]
_KEY: Final = "PRIMARY KEY"

Form: TypeAlias = Literal["plain", "json", "digest", "ids", "logprobs", "file"]
"""What a cell holds, for formats that have lists: packed ids and log-probabilities are lists there, a digest is hex."""


@dataclass(frozen=True, slots=True)
class Column:
    """Describe one column.

    Args:
        name: Its name.
        type: Its SQL type.
        doc: What it holds.
        rule: SQL constraint.
        sealed: It enters the hash chain as it stands; references enter as the digest of what they refer to.
        form: What it holds.
    """

    name: str
    type: Literal["INTEGER", "REAL", "TEXT", "BLOB"]
    doc: str
    rule: Rule = "NOT NULL"
    sealed: bool = False
    form: Form = "plain"

    @property
    def nullable(self) -> bool:
        """Whether a cell may be empty."""
        return not self.rule


@dataclass(frozen=True, slots=True)
class Table:
    """Describe one table.

    Args:
        name: Its name.
        doc: What one record is.
        columns: Its columns.
        index: Name and SQL of an index over it.
    """

    name: str
    doc: str
    columns: tuple[Column, ...]
    index: str = ""

    @property
    def sealed(self) -> tuple[str, ...]:
        """Names of the columns that enter the hash chain, in their order there."""
        return tuple(column.name for column in self.columns if column.sealed)


def _sealed(
    name: str, kind: Literal["INTEGER", "REAL", "TEXT", "BLOB"], doc: str, *, null: bool = False, form: Form = "plain"
) -> Column:
    return Column(name, kind, doc, "" if null else "NOT NULL", sealed=True, form=form)


def _digest(name: str, doc: str, *, unique: bool = False) -> Column:
    return Column(name, "BLOB", doc, "NOT NULL UNIQUE" if unique else "NOT NULL", form="digest")


TABLES: Final = (
    Table(
        "meta",
        "a document about the whole shard",
        (
            Column("name", "TEXT", "what it is: run, or episodes", _KEY),
            Column("body", "TEXT", "JSON: what the run is made with, or the number of episodes", form="json"),
            _digest("digest", "short seal of name and body"),
        ),
    ),
    Table(
        "roots",
        "the tokenizer, template and tools that conversations begin with",
        (
            Column("id", "INTEGER", "counts from 1", _KEY),
            Column("fingerprint", "TEXT", "sha256 of tokenizer, template and settings, hex"),
            Column("vocab_size", "INTEGER", "every id is below it"),
            Column("tools", "TEXT", "JSON array of the tools' schemas", form="json"),
            _digest("digest", "short seal of the three before", unique=True),
        ),
    ),
    Table(
        "nodes",
        "a span of ids that follows its parent, stored once however many contexts run through it",
        (
            Column("id", "INTEGER", "counts from 1; a parent's is smaller", _KEY),
            Column("root", "INTEGER", "roots.id in a first span; null in others", ""),
            Column("parent", "INTEGER", "nodes.id of the span before; null in a first span", ""),
            Column("origin", "TEXT", "prompt, observation, tool, sampled, demonstration or forced"),
            Column("length", "INTEGER", "number of ids"),
            Column("ids", "BLOB", "ids, packed", form="ids"),
            Column("logprobs", "BLOB", "log-probabilities in nats, packed; null without", "", form="logprobs"),
            Column("replaced", "INTEGER", "lone surrogates of the text that became U+FFFD"),
            _digest("digest", "short seal after the parent's digest, or the root's", unique=True),
        ),
    ),
    Table(
        "settings",
        "an engine with its sampling parameters",
        (
            Column("id", "INTEGER", "counts from 1", _KEY),
            Column(
                "body", "TEXT", 'JSON: {"engine": text, "sampling": object or null}', "NOT NULL UNIQUE", form="json"
            ),
        ),
    ),
    Table(
        "episodes",
        "a rollout",
        (
            Column("id", "INTEGER", "counts from 1", _KEY),
            Column("name", "TEXT", "id of the episode", "NOT NULL UNIQUE", sealed=True),
            _sealed("task", "TEXT", "id of the task"),
            _sealed("source", "TEXT", "the name that scores carry"),
            _sealed("group_id", "TEXT", "shared by the rollouts of a group"),
            _sealed("replica", "INTEGER", "place in the group"),
            _sealed("seed", "INTEGER", "of the episode"),
            _sealed("parent", "TEXT", "id of the episode that opened this one", null=True),
            _sealed("parent_turn", "INTEGER", "index of the turn there that did", null=True),
            _sealed("role", "TEXT", "what the agent is for"),
            _sealed("created", "REAL", "Unix time, s"),
            Column("status", "TEXT", "running, done, failed or abandoned"),
            Column("success", "INTEGER", "the world's verdict, 0 or 1; null without one", ""),
            Column("failure", "TEXT", "JSON: {boundary, kind, message}; null without one", "", form="json"),
            Column("turns", "INTEGER", "number of its turns"),
            _digest("tip", "hash chain up to here"),
        ),
        "CREATE INDEX episodes_parent ON episodes (parent) WHERE parent IS NOT NULL",
    ),
    Table(
        "turns",
        "one attempt at one turn",
        (
            Column("id", "INTEGER", "counts from 1, in the order of writing", _KEY),
            Column("episode", "INTEGER", "episodes.id"),
            Column("seq", "INTEGER", "place among the episode's attempts, from 0"),
            Column("context", "INTEGER", "nodes.id of the last span that the engine received"),
            Column("completion", "INTEGER", "nodes.id of what it answered, a child of that"),
            Column("settings", "INTEGER", "settings.id"),
            _sealed("turn", "INTEGER", "index of the turn"),
            _sealed("attempt", "INTEGER", "how often it had been sampled before"),
            _sealed("used", "INTEGER", "1: the episode went on with this attempt"),
            _sealed("sent", "BLOB", "digest of the ids that the engine was handed", form="digest"),
            _sealed("finish_reason", "TEXT", "stop, length, truncated or abort"),
            _sealed("ids_exact", "INTEGER", "0: the ids were guessed from text"),
            _sealed("logprob_kind", "TEXT", "raw, processed, missing or sentinel"),
            _sealed("versions", "TEXT", "JSON: [[weight version, start, end], ...] over the completion", form="json"),
            _sealed("edge", "TEXT", "kind of the edge"),
            _sealed("edge_source", "INTEGER", "index of the turn that it comes from", null=True),
            _sealed("edge_declared", "INTEGER", "0: found out from the ids"),
            _sealed("edge_place", "INTEGER", "first token at which the context leaves the source's ids", null=True),
            _sealed("format_ok", "INTEGER", "the protocol's form was kept", null=True),
            _sealed("valid_action", "INTEGER", "the world accepted the action", null=True),
            _sealed("reward", "REAL", "of this turn"),
            _sealed("terminated", "INTEGER", "the world ended the episode"),
            _sealed("truncated", "INTEGER", "a limit ended the episode"),
            _sealed("truncation", "TEXT", "which limit", null=True),
            _sealed("seed", "INTEGER", "of the request"),
            _sealed("started", "REAL", "Unix time, s"),
            _sealed("ended", "REAL", "Unix time, s"),
            _sealed(
                "evidence",
                "BLOB",
                "short seal of what an engine said beside the ids; null without",
                null=True,
                form="digest",
            ),
            _sealed("texts", "BLOB", "short seal of texts.body", form="digest"),
            _digest("hash", "hash chain up to here"),
        ),
        "CREATE UNIQUE INDEX turns_episode ON turns (episode, seq)",
    ),
    Table(
        "texts",
        "what is free text in a turn: what people read, and what can be taken out",
        (
            Column("turn", "INTEGER", "turns.id", _KEY),
            Column("body", "TEXT", "JSON: {messages, text, action_text, reason, failure, facts}", form="json"),
        ),
    ),
    Table(
        "evidence",
        "what an engine said of a turn beside ids and log-probabilities",
        (
            Column("turn", "INTEGER", "turns.id", _KEY),
            Column("layers", "INTEGER", "mixture-of-experts layers; null without experts", ""),
            Column("chosen", "INTEGER", "experts that each layer chose for a token", ""),
            Column("experts", "BLOB", "experts of each token, layer by layer, packed as ids are", "", form="ids"),
            Column(
                "counts", "BLOB", "how many ids each token could be drawn from, packed; null without", "", form="ids"
            ),
            Column("support", "BLOB", "those ids, token by token, packed as ids are", "", form="ids"),
        ),
    ),
    Table(
        "images",
        "an image that messages show",
        (
            Column("id", "INTEGER", "counts from 1", _KEY),
            Column("sha256", "TEXT", "of the body, hex: what messages name it by", "NOT NULL UNIQUE"),
            Column("type", "TEXT", "media type, such as image/png"),
            Column("body", "BLOB", "the file", form="file"),
            _digest("digest", "short seal of sha256 and type"),
        ),
    ),
    Table(
        "redactions",
        "content that was taken away; the record's own digest stays, and the chain with it",
        (
            Column("id", "INTEGER", "counts from 1", _KEY),
            Column("kind", "TEXT", "table of the record: nodes, evidence or texts"),
            Column("record", "INTEGER", "nodes.id, or the id of the turn"),
            Column("rule", "TEXT", "what was looked for"),
            Column("made", "REAL", "Unix time, s"),
            _digest("body", "digest that the record would have as it stands now"),
            _digest("digest", "short seal of kind, the record's own digest, rule, made, body"),
        ),
    ),
    Table(
        "tokens",
        "the text of a used id",
        (
            Column("id", "INTEGER", "token id", _KEY),
            Column("text", "TEXT", "its entry in the vocabulary"),
            _digest("digest", "short seal of id and text"),
        ),
    ),
)

BY_NAME: Final = {table.name: table for table in TABLES}
"""The tables by name."""
HEAD: Final = BY_NAME["episodes"].sealed
"""Columns of an episode's head, in the order in which the chain begins with them."""
TURN: Final = BY_NAME["turns"].sealed
"""Columns of a turn, in the order in which they follow the three references in the chain."""


def ddl() -> dict[str, str]:
    """Return the SQL statement of each table and index, by name."""
    statements: dict[str, str] = {}
    for table in TABLES:
        width = max(len(column.name) for column in table.columns)
        lines = []
        for place, column in enumerate(table.columns):
            comma = "," if place < len(table.columns) - 1 else ""
            definition = f"{column.name:<{width}} {column.type:<7} {column.rule}".rstrip() + comma
            lines.append(f"    {definition:<{width + 26}} -- {column.doc}")
        statements[table.name] = "\n".join([f"CREATE TABLE {table.name} ( -- {table.doc}", *lines, ")"])
        if table.index:
            statements[table.index.split(" ON ")[0].split()[-1]] = table.index
    return statements


def sql() -> str:
    """Return the whole schema as SQL."""
    return "\n\n".join(f"{statement};" for statement in ddl().values()) + "\n"
