"""Helpers: the tables in ../cases, outcomes, racing threads, waiting."""

import os
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor, as_completed
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError

# Retry connection failures only: the server may close an idle connection, but a retry must not hide an error.
OPTIONS = {"retry_status": 0, "retry_read": 1, "retry_connect": 1, "initial_backoff": 0, "read_timeout": 120}


class LastResponse(HTTPResponse):
    """A response after which the client closes the connection."""

    def begin(self):
        super().begin()
        self.will_close = True


# The clients do not retry a POST. For a server that closes idle connections early, open a new one each time.
if os.environ.get("IFMATCH_SDK_KEEP_ALIVE") == "off":
    HTTPConnection.response_class = LastResponse

# Far longer than any lease in the suite, even on a busy machine.
PATIENCE = 600


def rows(file):
    """Returns the rows of a table in ../cases as dictionaries."""
    lines = (Path(__file__).parent.parent / "cases" / file).read_text().splitlines()
    head, *rest = (line.split() for line in lines if line and not line.startswith("#"))
    return [dict(zip(head, line, strict=True)) for line in rest]


def parametrize(cases, name):
    """Runs a test for each case, named by `name`."""
    return pytest.mark.parametrize("row", [pytest.param(case, id=name(case)) for case in cases])


def outcome(call):
    """Returns `("ok", None)`, or the status and the error code."""
    try:
        call()
    except HttpResponseError as error:
        return error.status_code, code(error)
    return "ok", None


def code(error):
    """Returns the error code: a header of the blob service, or part of the table service's body."""
    return error.response.headers.get("x-ms-error-code") or getattr(error, "error_code", None)


def check(call, row):
    """Checks the outcome against a row: `ok` or a status, and a code or `any`."""
    status, given = outcome(call)
    expected = row["status"] if row["status"] == "ok" else int(row["status"])
    right = status == expected and (row["code"] in ("-", "any", "") or given == row["code"])
    assert right, f"{status} {given} instead of {row['status']} {row['code']}"


def refused(call, status, *codes):
    """Checks that the call fails with this status and one of these codes."""
    answer = outcome(call)
    assert answer[0] == status and (not codes or answer[1] in codes), f"{answer} instead of {status} {codes}"


def race(count, work):
    """Runs `work(number)` in `count` threads that start together, and returns the results by number.

    Raises the error that came first: the others may wait in vain for the thread that failed.
    """
    barrier = threading.Barrier(count, timeout=PATIENCE)

    def run(number):
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as threads:
        futures = [threads.submit(run, number) for number in range(count)]
        for future in as_completed(futures):
            future.result()
    return [future.result() for future in futures]


def again(attempt, pause=0.01):
    """Repeats `attempt` with increasing pauses until it returns something other than None."""
    deadline = time.monotonic() + PATIENCE
    while (result := attempt()) is None:
        assert time.monotonic() < deadline, f"{PATIENCE} seconds without a result"
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)
    return result


def guid():
    return str(uuid.uuid4())
