#!/usr/bin/env python3
"""The narrowest link's rate to another member, by packet pairs over the probe service (docs/probe-service.md).

    capacity.py NODE [--pairs N] [--accept-busy]   estimates it; prints Mbit/s and how many pairs agree
    capacity.py --receive [--from NODE]            prints each probe that comes here, as the other tool sends them

Needs a running `thalweg node` on this host, and its owner's rights; THALWEG_STATE names its directory.
"""

import argparse
import json
import os
import socket
import sys

TAG = b"cap1"  # the first bytes of this tool's headers: so its probes are told from others'
SAME = 0.05  # distances that differ by less than twice this share are one


class Service:
    def __init__(self, state):
        path = os.path.join(state, "probe.sock")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
        except OSError as why:
            sys.exit(f"capacity: {path}: {why.strerror or why}; does `thalweg node` run, with that directory as its own?")
        self.lines = connection.makefile("rw", encoding="utf-8")

    def hear(self):
        said = json.loads(self.lines.readline() or '{"error": "the node has ended"}')
        if "error" in said:
            sys.exit(f"capacity: {said['error']}")
        return said

    def ask(self, what):
        print(json.dumps(what), file=self.lines, flush=True)
        return self.hear()


def pair(service, node, size, number, accept_busy):
    """Nanoseconds between two probes that left together; None if one was lost or overtaken."""
    probes = [{"size": size, "header": (TAG + number.to_bytes(4, "big")).hex(), "count": 2}]
    report = service.ask({"send": {"to": node, "probes": probes, "accept_busy": accept_busy}})["report"]
    first, second = report["arrived_ns"]
    apart = second - first if first and second else 0
    return (apart if apart > 0 else None), report


def mode(distances):
    """The middle of the range, 10 % wide, in which most of them lie, and how many those are."""
    distances = sorted(distances)
    near = [[d for d in distances[i:] if d <= low * (1 + 2 * SAME)] for i, low in enumerate(distances)]
    return (best := max(near, key=len))[len(best) // 2], len(best)


def estimate(service, node, pairs, accept_busy):
    opened = service.ask({"open": {"to": node}})["opened"]
    size, overhead = opened["largest"], opened["overhead"]  # what IP and UDP add to each probe
    distances, spent, doubts = [], 0, set()
    for number in range(pairs):
        apart, report = pair(service, node, size, number, accept_busy)
        distances += [apart] if apart else []
        spent, doubts = spent + report["bytes"], doubts | set(report["doubts"])
        print(f"\rpair {number + 1} of {pairs}", end="", file=sys.stderr)
    print(file=sys.stderr)
    if not distances:
        sys.exit("capacity: no pair came through whole")
    apart, agree = mode(distances)
    mbps = round((size + overhead) * 8e3 / apart, 3)
    print(json.dumps({"mbps": mbps, "agree": agree, "pairs": pairs, "bytes": spent, "doubts": sorted(doubts)}))


def receive(service, node):
    said = service.ask({"receive": {"prefix": TAG.hex()} | ({"from": node} if node else {})})
    while True:
        print(json.dumps(said), flush=True)
        said = service.hear()


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
        parser.error("name a member, or give --receive")


if __name__ == "__main__":
    main()
