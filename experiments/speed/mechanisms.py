"""The mechanisms that plain S-LoRA has not got, and how the conditions that ask for them are known."""

from __future__ import annotations

import re

ABSENT = {
    "prefix cache": r"prefix|\bcache\b|shared_tokens|held_tokens|block_hashes|session",
    "unified swapper": r"swapp|swapper|look_s|next_check_s|busy_tokens",
    "KV on the host": r"leaving|transit|in_flight|host_tokens|host_kv|kv_offload|offload|swaps?\b|own_kv_s"
    r"|room_s|claim_writable|writable_s",
    "merging": r"merge|merging|_beside\b|Miss\.FREE|^free$",
    "CPU assistance": r"help|assist|cpu_lora|\bcores\b|Miss\.ASSIST",
    "chunked prefill, mixed passes": r"chunk|prefilling|\bmixed_pass|decision\.decode|output\.decode|decoding is"
    r"|\bdecoding\b|^self\._prefill$|^(self\.)?table\.prefill$|num_computed",
    "pausing": r"pause|resume|still_tokens|_still\b|beside is",
    "asynchronous loading": r"lands_s|landing|landed|\blate\b|begins|apart|defer|async|take_ready|loading_adapter"
    r"|Miss\.WAIT|stand(s_)?still|^others$|\b_?standing|_to_do|LOADING",
    "divided pool": r"divided|adapter_capacity|_shared\b|adapter_tokens > self\.(_room|_limits)|adapter_memory",
    "adapter region": r"region|arena|flush|lay_out",
    "limit on adapters": r"more_adapters|max_adapters|max_loras|most is None",
    "tracing": r"tracing|tracer|\btold\b|_told\b|on_change|listener|\btrace_log",
    "migration, handing over": r"sends|brings|migrat|moving|hand_?(over|off)|came_s|comes\b|depart|^token_s\b"
    r"|inherit|\bby\b|\bsource\b",
    "prefetch": r"\bahead\b|wanted|fetches|prefetch|_idle\.pop",
    "GPU sharing": r"gpu\b|gpu_sharing|neighbour|crowded|engines_per",
    "slow replicas and links": r"slow|straggl|renew|pace_changed",
    "host memory, disk tier": r"host_memory|_memory\b|from_disk|disk|watched|in_turn|evicts_in_use|just_left",
    "distributed adapter store": r"stores?\b|remote|storage",
    "autoscaling": r"scales|scaling|autoscal",
    "placement": r"\b_?plans\b|serves|replan|placed",
    "failures": r"all_open|fail|outage|\bdown\b|expected|unassigned|homeless|drain|candidates\.size",
    "stale status": r"stale|status_every",
    "several kinds of replicas": r"mixed|kinds",
    "router loads": r"loads? is|queued|informed|load_tracker|\bloads\b",
    "limits of a run": r"_most is|max_outstanding|adapter_rps|limiter|missed|until_missed",
    "preemption": r"preempt|make_room|admitted_s|first_token_s",
    "what other schedulers say": r"notes|abort|passed_over|skipped|until_s|_by_adapter|actions",
    "other kernels and rules": r"count_segments|counts_|padded|grows",
}
"""Mechanism by mechanism, what the text of a condition that asks for it contains; the first that fits is meant.

The words are those of the engine before it was divided into parts, and those that parts may bring. A condition counts
as such a question only if its answer was the same throughout the run, so that a word may be in use elsewhere.
"""
_KNOWN = [(name, re.compile(words)) for name, words in ABSENT.items()]


def mechanism(condition: str) -> str | None:
    """Return the mechanism that a condition names, None: none of these."""
    return next((name for name, words in _KNOWN if words.search(condition)), None)
