"""Conditional headers that the client can send: rows of crates/ifmatch-gateway/tests/data/blackbox/azure-conditions.txt."""

from datetime import datetime, timezone
from pathlib import Path

import pytest
from operations import OPERATIONS, conditions, expressible, stage
from support import check, outcome, parametrize

TABLE = Path(__file__).parents[3] / "crates/ifmatch-gateway/tests/data/blackbox" / "azure-conditions.txt"


def cases():
    """Returns a case for each row and each of its operations."""
    lines = (line for line in TABLE.read_text().splitlines() if line and not line.startswith("#"))
    for line in lines:
        operations, fields, status, code = (column.strip() for column in line.split("|"))
        for operation in operations.split(" "):
            if operation.removeprefix("absent-") in OPERATIONS and expressible(operation, fields):
                yield {"operation": operation, "conditions": fields, "status": status, "code": code}


@pytest.fixture
def target(request, container):
    """Returns the operation's target, its tag and its date."""
    name = request.getfixturevalue("row")["operation"]
    if name.startswith("container-"):
        properties = container.get_container_properties()
        return container, properties.etag, properties.last_modified
    blob = container.get_blob_client("blob")
    if name.startswith("absent-"):
        return blob, None, datetime.now(timezone.utc)
    blob.upload_blob(b"first")
    properties = blob.get_blob_properties()
    return blob, properties.etag, properties.last_modified


@parametrize(cases(), lambda row: f"{row['operation']} {row['conditions']}")
def test_condition(row, target):
    client, tag, date = target
    name = row["operation"].removeprefix("absent-")
    if name == "list":
        stage(client)
    check(lambda: OPERATIONS[name](client, **conditions(row["conditions"], tag, date)), row)
    if row["status"] != "ok" and tag and not name.startswith("container-"):
        assert client.get_blob_properties().etag == tag, "a refused operation changed the blob"
        assert client.download_blob().readall() == b"first"
    if row["status"] != "ok" and name == "container-delete":
        assert outcome(client.get_container_properties) == ("ok", None)
