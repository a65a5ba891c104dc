"""What an engine says of a turn beside ids and log-probabilities: experts and sampling support, to cells and back."""

from typing import Any

import numpy as np

from agentgym_tok.errors import TraceCorrupt
from agentgym_tok.tokens import Ids
from agentgym_tok.trace.chain import Value, short_seal
from agentgym_tok.trace.codec import ids_bytes, pack_ids, unpack_ids
from agentgym_tok.types import Completion, Experts, Support

__all__ = ["evidence_cells", "evidence_from", "evidence_seal"]


def evidence_seal(experts: Experts | None, support: Support | None) -> bytes | None:
    """Return the short seal of what was said, by its values; None where nothing was.

    The values are layers, chosen, experts, counts and support ids, arrays as int32 blobs, null for what is missing.
    """
    if experts is None and support is None:
        return None
    values: list[Value] = [None] * 5
    if experts is not None:
        values[:3] = experts.shape[1], experts.shape[2], ids_bytes(_flat(experts))
    if support is not None:
        values[3:] = ids_bytes(support.counts_T), ids_bytes(support.ids_S)
    return short_seal(b"", values)


def evidence_cells(completion: Completion) -> tuple[Value, ...]:
    """Return what was said in the order of the table `evidence`, without the turn."""
    experts, support = completion.experts_T_L_K, completion.support
    routing = (None, None, None) if experts is None else (*experts.shape[1:], pack_ids(_flat(experts)))
    if support is None:
        return (*routing, None, None)
    return (*routing, pack_ids(support.counts_T), pack_ids(support.ids_S))


def evidence_from(cells: Any, length: int) -> tuple[Experts | None, Support | None]:
    """Read what was said of `length` ids from a record of `evidence`.

    Raises:
        TraceCorrupt: It does not fit.
    """
    experts = support = None
    if cells["experts"] is not None:
        layers, chosen = cells["layers"], cells["chosen"]
        if layers is None or chosen is None or min(layers, chosen) < 0:
            raise TraceCorrupt("experts are damaged", where="evidence", got=f"{layers} layers, {chosen} chosen")
        flat = unpack_ids(cells["experts"], length * layers * chosen)
        experts = flat.astype(np.uint16).reshape(length, layers, chosen)
        experts.flags.writeable = False
    if cells["counts"] is not None:
        counts_T = unpack_ids(cells["counts"], length)
        support = Support(counts_T, unpack_ids(cells["support"], int(counts_T.sum())))
    return experts, support


def _flat(experts: Experts) -> Ids:
    return experts.reshape(-1).astype(np.int32)
