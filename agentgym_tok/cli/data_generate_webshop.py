"""`agentgym-tok data generate webshop`: a generated shop as files in the official format."""

from pydantic import Field

from agentgym_tok.cli.progress import Amounts
from agentgym_tok.config import Config
from agentgym_tok.envs.webshop.generated.shop import SOURCE, write_synth

__all__ = ["Options", "run"]


class Options(Config):
    """Write generated products and instructions as the three files that WebShop is published as."""

    out: str = Field(description="folder for the files; must not exist")
    products: int = Field(default=1000, ge=1, description="how many")
    seed: int = Field(default=0, ge=0, description="seed of the catalogue")


def run(options: Options) -> int:
    """Write the files; return 0.

    Raises:
        ConfigError: The folder is there already.
    """
    with Amounts() as amounts:
        items, attributes, human = write_synth(
            options.out,
            options.products,
            seed=options.seed,
            progress=lambda done, total: amounts.show("products", done, total),
        )
    print(f"{options.products:,} products of {SOURCE}")
    print(f"agentgym-tok data prepare webshop --items {items} --ins {attributes} --human {human}")
    return 0
