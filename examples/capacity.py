#!/usr/bin/env python3
"""Estimates the capacity of the path to another member, with packet pairs over the probe service (docs/probe-service.md).

    capacity.py NODE [--pairs N] [--accept-busy]   prints the estimate in Mbit/s and how many pairs agree
    capacity.py --receive [--from NODE]            prints each probe of this tool that arrives here

It needs a running `thalweg node` on this host and the rights of its owner. THALWEG_STATE names the node's state directory.
"""

import argparse
import json
import os
import socket
import sys

TAG = b"cap1"  # the first bytes of this tool's probe headers; they distinguish its probes from those of other tools
SAME = 0.05  # gaps that differ by less than twice this share count as equal


class Service:
    def __init__(self, state):
        path = os.path.join(state, "probe.sock")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
        except OSError as why:
            sys.exit(f"capacity: {path}: {why.strerror or why}; is `thalweg node` running with this state directory?")
        self.lines = connection.makefile("rw", encoding="utf-8")

    def read(self):
        reply = json.loads(self.lines.readline() or '{"error": "the node has stopped"}')
        if "error" in reply:
            sys.exit(f"capacity: {reply['error']}")
        return reply

    def ask(self, request):
        print(json.dumps(request), file=self.lines, flush=True)
        return self.read()


def pair(service, node, size, number, accept_busy):
    """Nanoseconds between the arrivals of two probes sent back to back; None if one was lost or they were reordered."""
    probes = [{"size": size, "header": (TAG + number.to_bytes(4, "big")).hex(), "count": 2}]
    report = service.ask({"send": {"to": node, "probes": probes, "accept_busy": accept_busy}})["report"]
    first, second = report["arrived_ns"]
    gap = second - first if first and second else 0
    return (gap if gap > 0 else None), report


def mode(gaps):
    """The middle of the densest range of gaps, 10 % wide, and how many gaps are in it."""
    gaps = sorted(gaps)
    ranges = [[gap for gap in gaps[i:] if gap <= low * (1 + 2 * SAME)] for i, low in enumerate(gaps)]
    return (best := max(ranges, key=len))[len(best) // 2], len(best)


def estimate(service, node, pairs, accept_busy):
    opened = service.ask({"open": {"to": node}})["opened"]
    size, overhead = opened["largest"], opened["overhead"]  # overhead: bytes of IP and UDP headers per probe
    gaps, spent, doubts = [], 0, set()
    for number in range(pairs):
        gap, report = pair(service, node, size, number, accept_busy)
        gaps += [gap] if gap else []
        spent, doubts = spent + report["bytes"], doubts | set(report["doubts"])
        print(f"\rpair {number + 1} of {pairs}", end="", file=sys.stderr)
    print(file=sys.stderr)
    if not gaps:
        sys.exit("capacity: no pair arrived complete")
    gap, agree = mode(gaps)
    mbps = round((size + overhead) * 8e3 / gap, 3)
    print(json.dumps({"mbps": mbps, "agree": agree, "pairs": pairs, "bytes": spent, "doubts": sorted(doubts)}))


def receive(service, node):
    reply = service.ask({"receive": {"prefix": TAG.hex()} | ({"from": node} if node else {})})
    while True:
        print(json.dumps(reply), flush=True)
        reply = service.read()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("node", nargs="?")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--accept-busy", action="store_true")
    parser.add_argument("--receive", action="store_true")
    parser.add_argument("--from", dest="sender")
    args = parser.parse_args()
    service = Service(os.environ.get("THALWEG_STATE") or os.path.expanduser("~/.local/state/thalweg"))
    if args.receive:
        receive(service, args.sender)
    elif args.node:
        estimate(service, args.node, args.pairs, args.accept_busy)
    else:
        parser.error("give a member, or --receive")


if __name__ == "__main__":
    main()
