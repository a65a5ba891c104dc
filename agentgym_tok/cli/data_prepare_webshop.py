"""`agentgym-tok data prepare webshop`: WebShop's own files, made ready to be opened at once."""

from pydantic import Field

from agentgym_tok.cli.progress import Amounts
from agentgym_tok.config import Config
from agentgym_tok.envs.webshop.data import prepare

__all__ = ["Options", "run"]

_CHECK = "WebShop's own small catalogue has 1,000 products and 6,910 synthetic goals"


class Options(Config):
    """Prepare WebShop's own files, which stay as they are; the same files are not prepared twice."""

    items: str = Field(description="products: items_shuffle.json, items_shuffle_1000.json")
    ins: str = Field(description="attributes and template instructions: items_ins_v2.json, items_ins_v2_1000.json")
    human: str | None = Field(default=None, description="instructions of people: items_human_ins.json")
    nouns: str | None = Field(default=None, description="nouns of titles that somebody has tagged; else spaCy does")
    out: str | None = Field(default=None, description="where the prepared folder goes; the user's cache without it")


def run(options: Options) -> int:
    """Prepare, print the counts and where the data stands; return 0.

    Raises:
        DataMissing: A file is not there.
        DataCorrupt: A file is not what it should be.
        MissingExtra: Titles must be tagged, and spaCy or its model is not installed.
    """
    with Amounts() as amounts:
        done = prepare(
            options.items,
            options.ins,
            options.human,
            folder=options.out,
            nouns=options.nouns,
            progress=amounts.show,
        )
    print(f"{done.source}: " + ", ".join(f"{count:,} {name}" for name, count in done.counts.items()))
    if done.nouns is not None:
        print(f"nouns of titles by {done.nouns}\nto compare: {_CHECK}")
    print(f"export WEBSHOP_DATA={done.folder}")
    return 0
