"""Conditional headers on every operation that supports them: ../cases/conditions.txt."""

from datetime import datetime, timezone

import pytest
from operations import OPERATIONS, conditions, stage
from support import check, outcome, parametrize, rows

CASES = [row | {"operation": name} for row in rows("conditions.txt") for name in row["operations"].split(",")]


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


@parametrize(CASES, lambda row: f"{row['operation']} {row['conditions']}")
def test_condition(row, target):
    client, tag, date = target
    name = row["operation"].removeprefix("absent-")
    if name == "blocklist":
        stage(client)
    check(lambda: OPERATIONS[name](client, **conditions(row["conditions"], tag, date)), row)
    if row["status"] != "ok" and tag and not name.startswith("container-"):
        assert client.get_blob_properties().etag == tag, "a refused operation changed the blob"
        assert client.download_blob().readall() == b"first"
    if row["status"] != "ok" and name == "container-delete":
        assert outcome(client.get_container_properties) == ("ok", None)
