"""A request whose client has gone: it leaves the queue, or ends with its next token."""

from __future__ import annotations

from collections.abc import MutableSequence

from simlora.core.request import Request
from simlora.engine.replica.ending import steps_ahead
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.request_table import PREFILLED

REASON = "the client has gone"


def cancel(replica: Replica, request: Request, outputs: MutableSequence[int]) -> bool:
    """End a request of this replica, between two events; return whether it is here.

    A waiting request is aborted at once. Any other one has its true length in `outputs` cut to the tokens that it has
    at the end of the iteration under way, at least one, and finishes there: as a request that was as short from the
    beginning, so that a trace of what was generated gives the same run again.
    Source: vLLM, whose engine core frees an aborted request between two steps. Differs: a prompt that is being
    processed, or waits for its weights, is processed to its first token.
    """
    table = replica.table
    batch, held = table.batch, table.held
    if request.id in batch.members:
        replica.interrupt()
        window = table.window
        ahead = 1 if window is None else window.stop - window.done
        tokens = batch.generated(request) + ahead
        if tokens < outputs[request.id]:
            batch.shorten(request, tokens)
            outputs[request.id] = tokens
            if window is not None:
                window.finish = min(window.finish, window.stop)
        return True
    prefilled = any(request.id in held[status] for status in PREFILLED)
    if prefilled or any(each.id == request.id for each in table.prefill) or _is_held(replica, request):
        # One that has been prefilled, and is not in the batch, goes on with a further token.
        outputs[request.id] = min(outputs[request.id], request.generated_tokens + 1 + prefilled)
        return True
    if any(each.id == request.id for each in table.queue):
        _leave_queue(replica, request)
        return True
    return False


def _leave_queue(replica: Replica, request: Request) -> None:
    """A request waits no longer: those behind it may be admitted at the next boundary, and the queue is shorter."""
    table, window, ahead = replica.table, replica.decoding, steps_ahead(replica)
    if ahead and window is not None:  # boundaries that were passed over found it waiting
        waiting = table.waited_at(window.end_s(window.done + ahead))
        replica.most_waiting = max(replica.most_waiting, waiting)
    table.leaves_queue(request, replica.clock.now, replica.since_s)
    table.abort(request, REASON, replica.clock.now)
    if replica.idle:
        replica.wake()
    else:
        replica.interrupt()


def _is_held(replica: Replica, request: Request) -> bool:
    return any(request.id in requests for requests in replica.table.held.values())
