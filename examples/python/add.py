#!/usr/bin/env python3
"""Queues a download and follows it, with the client that `generate` makes (docs/console.md): add.py URL"""
import os, sys, time
from thalweg_client import AuthenticatedClient
from thalweg_client.api.jobs import add_job, show_job
from thalweg_client.models import ApiError, JobRequest

STATE = os.environ.get("THALWEG_STATE") or os.path.expanduser("~/.local/state/thalweg")
API = os.environ.get("THALWEG_API", "http://127.0.0.1:7374")

client = AuthenticatedClient(base_url=API, token=open(os.path.join(STATE, "api.token")).read().strip())
job = add_job.sync(client=client, body=JobRequest(arguments=["get", sys.argv[1]], directory=os.getcwd()))
if isinstance(job, ApiError):
    sys.exit(job.message)
while job.state.value not in ("finished", "failed", "cancelled"):
    time.sleep(0.5)
    job = show_job.sync(job.id, client=client)
    print(job.state.value, job.done_bytes or 0, "of", job.total_bytes or "?", job.error or "")
sys.exit(job.state.value != "finished")
