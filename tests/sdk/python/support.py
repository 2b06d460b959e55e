"""What the cases share: the tables in ../cases, outcomes, racing threads, waiting."""

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError

# A wrong answer is not hidden by a retry; an idle connection that the server closed meanwhile is no answer.
OPTIONS = {"retry_status": 0, "retry_read": 1, "retry_connect": 1, "initial_backoff": 0, "read_timeout": 120}

# Far longer than any lease in the suite lasts, however busy the machine is: a wait that takes as long has failed.
PATIENCE = 600


def rows(file):
    """The rows of a table in ../cases as dictionaries by the column heads."""
    lines = (Path(__file__).parent.parent / "cases" / file).read_text().splitlines()
    head, *rest = (line.split() for line in lines if line and not line.startswith("#"))
    return [dict(zip(head, line, strict=True)) for line in rest]


def parametrize(cases, name):
    """Runs a test for each case; `name` tells how a case is called."""
    return pytest.mark.parametrize("row", [pytest.param(case, id=name(case)) for case in cases])


def outcome(call):
    """`("ok", None)`, or the status and the error code of a refusal."""
    try:
        call()
    except HttpResponseError as error:
        return error.status_code, code(error)
    return "ok", None


def code(error):
    """The error code: a header of the blob service, a part of the body in the table service."""
    return error.response.headers.get("x-ms-error-code") or getattr(error, "error_code", None)


def check(call, row):
    """The outcome must be the one of the row: `ok` or a status, and a code, which `any` leaves open."""
    status, given = outcome(call)
    expected = row["status"] if row["status"] == "ok" else int(row["status"])
    right = status == expected and (row["code"] in ("-", "any") or given == row["code"])
    assert right, f"{status} {given} instead of {row['status']} {row['code']}"


def refused(call, status, *codes):
    """The call must fail with this status and one of these codes."""
    answer = outcome(call)
    assert answer[0] == status and (not codes or answer[1] in codes), f"{answer} instead of {status} {codes}"


def race(count, work):
    """Runs `work(number)` in so many threads that begin together; the results by number."""
    barrier = threading.Barrier(count)

    def run(number):
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))


def again(attempt, pause=0.01):
    """Repeats `attempt` until it returns something other than None, with pauses that grow."""
    deadline = time.monotonic() + PATIENCE
    while (result := attempt()) is None:
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)
    return result


def guid():
    return str(uuid.uuid4())
