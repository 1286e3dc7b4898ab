"""A replica that stops before its requests have ended, and what of its work is counted then."""

from __future__ import annotations

from simlora.core.request import Request, arrival_order
from simlora.engine.handoff import Handoff
from simlora.engine.replica.part import NO_HOOKS
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.request_table import PREFILLED, RequestStatus
from simlora.metrics.tracing import ReplicaFailed
from simlora.policies.scheduling.base import SchedulerOutput


def context_tokens(replica: Replica, request: Request) -> int:
    """Return the prompt and the tokens so far of a request that has not left a replica."""
    table = replica.table
    if request.id in table.batch.members:
        return table.batch.context(request) + steps_ahead(replica)
    held = table.held
    prefilled = any(request.id in held[status] for status in PREFILLED)
    return request.prompt_tokens + request.padding_tokens + request.generated_tokens + prefilled


def used_tokens(replica: Replica) -> int:
    """Return the token slots that admitted requests' KV and adapters take: what cannot be evicted."""
    kv, step, ahead = replica.kv, replica.table.batch.step, steps_ahead(replica)
    tokens = kv.running_tokens(step + ahead) + kv.adapters.pinned_tokens
    if ahead:  # by which the KV of held requests has not grown
        for request in replica.table.growing():
            tokens -= kv.own_tokens(request, step + ahead) - kv.own_tokens(request, step)
    return tokens


def cached_tokens(replica: Replica, request: Request) -> int:
    """Return the leading tokens of a request's prompt whose KV a replica has in HBM."""
    kv = replica.kv
    return kv.matched_tokens(request, used_tokens(replica) - kv.adapters.pinned_tokens, replica.clock.now)


def steps_ahead(replica: Replica) -> int:
    """Return the decode steps that are over, and not counted yet."""
    window = replica.decoding
    if window is None or replica.idle:
        return 0
    return window.first_boundary(replica.clock.now) - 1 - window.done


def count_past(replica: Replica) -> float | None:
    """Count the steps that were over before now, of a window that is not; return when the last was, if any."""
    window = replica.decoding
    if window is None:
        return None
    window.stop = window.first_boundary(replica.clock.now) - 1
    if window.stop <= window.done:
        return None
    ended_s = window.end_s(window.stop)
    replica.busy_s += ended_s - replica.since_s
    for on_ran in replica.hooks.on_ran:
        on_ran(ended_s)
    replica.count_steps(window, ended_s)
    replica.kv.make_room(ended_s)
    replica.record(replica.table.waited_at(ended_s))
    return ended_s


def finalize(replica: Replica) -> None:
    """The clock has stopped: count the steps that were over before, and record the admitted requests."""
    ended_s, table = count_past(replica), replica.table
    if ended_s is not None:
        replica.sample(ended_s)
    held = (request for requests in table.held.values() for request in requests.values())
    for request in (*table.batch, *held, *table.prefill):
        replica.recorder.left_running(request, replica.id, replica.clock.now)


def fail(replica: Replica) -> list[Handoff]:
    """Stop for good, with the iteration under way and all memory lost; return the requests by arrival."""
    table, loader, now_s = replica.table, replica.loader, replica.clock.now
    replica.clock.cancel(replica.wake_event)
    since_s = now_s
    if table.window is not None or table.prefill:
        busy_s = replica.busy_s + now_s - replica.since_s
        ended_s = count_past(replica)
        since_s = replica.since_s if ended_s is None else ended_s
        replica.busy_s = busy_s  # with the step that broke off
    if replica.recorder.tracing is not None:
        replica.recorder.tracing.add(ReplicaFailed(replica.id, now_s, since_s))
    waiting = {request.id for request in table.queue}
    prefill = {request.id for request in table.prefill} - table.held[RequestStatus.PREFILLING].keys()
    found: list[Handoff] = []
    for request in sorted(table.requests(), key=arrival_order):
        lost_tokens = request.chunked_tokens
        if request.id in waiting:
            table.dequeue(request)
        elif request.id in prefill:
            lost_tokens = request.prefill_tokens
        else:
            table.stop(request, now_s)
        request.cached_tokens = request.chunked_tokens = request.host_tokens = 0
        if request.admitted_s > now_s:  # it was still waiting for its weights
            request.admitted_s = -1.0
            weights_s, ready_s = loader.weights_s(request), loader.ready_s(request)
            table.stats.broke_off(request, now_s, weights_s, ready_s, loader.policy.assists)
        found.append(table.depart(request, lost_tokens))
    table.end_window()
    return found


def free(replica: Replica) -> None:
    """Break the references between a failed replica and its parts, so that its memory is freed at once.

    Looking for cycles takes a second in a large run.
    """
    table, loader, link = replica.table, replica.loader, replica.host_link
    replica.hooks = table.hooks = NO_HOOKS
    replica.wake_event.callback = _nothing
    replica.actions.clear()
    table.stops.clear()
    replica.ask = lambda view: SchedulerOutput()
    replica.kv.adapters.on_change, replica.kv.adapters.on_evict = (), ()
    loader.on_admit, loader.on_missing, loader.reload = (), (), ()
    link.to_gpu.on_transfer = link.to_host.on_transfer = ()


def _nothing() -> None:
    pass


def inherit_counters(replica: Replica, failed: Replica) -> None:
    """Count what a failed replica did, whose place `replica` takes with empty memory."""
    replica.busy_s = failed.busy_s
    replica.most_running, replica.most_waiting = failed.most_running, failed.most_waiting
    replica.view.iterations = failed.view.iterations
    replica.host_link.inherit_counters(failed.host_link, replica.clock.now)
    for own, theirs in zip(replica.hooks.parts, failed.hooks.parts, strict=True):
        own.inherit_counters(theirs)
    replica.found = 0, 0
    replica.sample(replica.clock.now)
