#!/usr/bin/env python3
"""Queues a download in the node and follows it (docs/console.md): download.py URL [DIRECTORY]"""
import json, os, sys, urllib.request

STATE = os.environ.get("THALWEG_STATE") or os.path.expanduser("~/.local/state/thalweg")
TOKEN = open(os.path.join(STATE, "api.token")).read().strip()


def call(path, body=None, headers={}):
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", **headers}
    return urllib.request.urlopen(urllib.request.Request("http://127.0.0.1:7374/v1" + path, body and json.dumps(body).encode(), headers))


directory = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else ".")
start = json.load(call("/jobs"))["change"]
job = json.load(call("/jobs", {"arguments": ["get", sys.argv[1]], "directory": directory}))
for line in call("/events", headers={"Last-Event-ID": start}):
    new = json.loads(line[6:]) if line.startswith(b"data: ") else {}
    if new.get("id") == job["id"] and "state" in new:
        print(new["state"], new.get("done_bytes", 0), "of", new.get("total_bytes", "?"), new.get("error", ""))
        if new["state"] in ("finished", "failed", "cancelled"):
            sys.exit(new["state"] != "finished")
