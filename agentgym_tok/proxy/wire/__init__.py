"""Three protocols of clients and one way to ask: requests in, answers out, whole or in pieces."""

from agentgym_tok.proxy.wire.ask import Ask, Image
from agentgym_tok.proxy.wire.reading import BadAsk
from agentgym_tok.proxy.wire.reply import Choice, Opening, Reply, TokenLogprob, Usage, call_namer, wire_id
from agentgym_tok.proxy.wire.telling import echo, pieces_of
from agentgym_tok.proxy.wire.wires import WIRES, Wire, WireStream

__all__ = [
    "WIRES",
    "Ask",
    "BadAsk",
    "Choice",
    "Image",
    "Opening",
    "Reply",
    "TokenLogprob",
    "Usage",
    "Wire",
    "WireStream",
    "call_namer",
    "echo",
    "pieces_of",
    "wire_id",
]
