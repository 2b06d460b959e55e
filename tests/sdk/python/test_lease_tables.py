"""Every lease operation and every use in every lease state: ../cases/lease-operations.txt and lease-uses.txt."""

import pytest
from azure.storage.blob import BlobLeaseClient
from lease_states import A, IDS, expired, in_state, properties
from operations import OPERATIONS
from support import check, outcome, rows

# The client proposes an id in each acquisition.
OPERATION_ROWS = [row for row in rows("lease-operations.txt") if row["operation"] != "acquire-none"]
USE_ROWS = rows("lease-uses.txt")

USES = {
    "write": OPERATIONS["metadata"],
    "put": OPERATIONS["put"],
    "create": OPERATIONS["create"],
    "delete": OPERATIONS["delete"],
    "read": OPERATIONS["get"],
    "container-delete": OPERATIONS["container-delete"],
    "container-write": lambda container: container.upload_blob("another", b"x"),
    "container-read": lambda container: list(container.list_blobs()),
}


def leases(cases):
    """Runs a test for each case. Cases with expired leases wait together, in one process."""
    together = [pytest.mark.waits, pytest.mark.xdist_group("expired leases")]
    marks = lambda row: together if row["state"] == "expired" else []
    return pytest.mark.parametrize("row", [pytest.param(row, id=name(row), marks=marks(row)) for row in cases])


def name(row):
    return f"{row.get('operation') or row['use']} {row['state']}"


@leases(OPERATION_ROWS)
def test_lease_operation(row, leased):
    client = leased("blob", row)
    before = properties(client)
    perform(client, row)
    after = properties(client)
    assert after.lease.state == row["after"]
    assert after.lease.status == ("locked" if row["after"] in ("leased", "breaking") else "unlocked")
    assert (after.etag, after.last_modified) == (before.etag, before.last_modified), "a lease operation changed the tag"


@leases(OPERATION_ROWS)
def test_container_lease_operation(row, leased):
    client = leased("container", row)
    perform(client, row)
    assert properties(client).lease.state == row["after"]


@leases(USE_ROWS)
def test_lease_use(row, leased):
    client = leased(kind(row), row)
    use, holder = with_id(row["use"])
    check(lambda: USES[use](client, **holder), row)
    if row["after"] == "gone":
        assert outcome(lambda: properties(client))[0] == 404
    else:
        assert properties(client).lease.state == row["after"]


def perform(client, row):
    """Performs the lease operation of a row and checks its outcome."""
    operation, *words = row["operation"].split("-")
    lease = BlobLeaseClient(client, IDS.get(words[0], A))
    calls = {
        "acquire": lambda: lease.acquire(60),
        "renew": lease.renew,
        "change": lambda: lease.change(IDS[words[1]]),
        "release": lease.release,
        "break": lambda: lease.break_lease(int(words[0])),
    }
    check(calls[operation], row if row["code"] != "-" else row | {"status": "ok"})


def kind(row):
    return "container" if row.get("use", "").startswith("container-") else "blob"


def with_id(use):
    """Splits `write-a` into `write` and the lease id A."""
    head, _, last = use.rpartition("-")
    return (head, {"lease": IDS[last]}) if last in IDS else (use, {})


@pytest.fixture
def leased(request, blobs):
    def bring(kind, row):
        if row["state"] == "expired":
            return request.getfixturevalue("expired_leases")[kind, name(row)]
        return in_state(blobs, kind, row["state"])

    return bring


@pytest.fixture(scope="session")
def expired_leases(blobs):
    """One resource for each case with an expired lease."""
    operations = [(kind, name(row)) for row in OPERATION_ROWS if row["state"] == "expired" for kind in ("blob", "container")]
    uses = [(kind(row), name(row)) for row in USE_ROWS if row["state"] == "expired"]
    return expired(blobs, operations + uses)
