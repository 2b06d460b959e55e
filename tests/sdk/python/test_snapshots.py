"""Snapshots: taken, read, listed, promoted and deleted."""

import pytest
from azure.core import MatchConditions
from support import outcome, race, refused


@pytest.fixture
def snapshot(container, blob):
    """A client of the snapshot of a blob that has changed since."""
    taken = container.get_blob_client(blob.blob_name, snapshot=blob.create_snapshot()["snapshot"])
    blob.upload_blob(b"second", overwrite=True)
    return taken


def contents(container):
    listed = container.list_blobs(include=["snapshots"])
    return [container.get_blob_client(entry.name, snapshot=entry.snapshot).download_blob().readall() for entry in listed]


def test_a_snapshot_stays_as_it_was_taken(container, blob, snapshot):
    assert snapshot.download_blob().readall() == b"first"
    assert blob.download_blob().readall() == b"second"
    assert contents(container) == [b"first", b"second"]
    refused(lambda: snapshot.upload_blob(b"x", overwrite=True), 400)


def test_a_snapshot_is_promoted_by_a_copy(blob, snapshot):
    blob.start_copy_from_url(snapshot.url)
    assert blob.download_blob().readall() == b"first"


def test_a_snapshot_on_a_condition(container, blob):
    tag = blob.get_blob_properties().etag
    unchanged = {"etag": tag, "match_condition": MatchConditions.IfNotModified}
    blob.create_snapshot(metadata={"colour": "red"}, **unchanged)
    blob.upload_blob(b"second", overwrite=True)
    refused(lambda: blob.create_snapshot(**unchanged), 412, "ConditionNotMet")
    lease = blob.acquire_lease(15)
    blob.create_snapshot()
    blob.create_snapshot(lease=lease)
    assert contents(container) == [b"first", b"second", b"second", b"second"]


def test_deletions_with_snapshots(container, blob, snapshot):
    refused(blob.delete_blob, 409, "SnapshotsPresent")
    blob.create_snapshot()
    snapshot.delete_blob()
    refused(snapshot.get_blob_properties, 404)
    blob.delete_blob(delete_snapshots="only")
    assert contents(container) == [b"second"]
    blob.create_snapshot()
    blob.delete_blob(delete_snapshots="include")
    assert contents(container) == []
    blob.upload_blob(b"third")
    assert contents(container) == [b"third"]
    blob.delete_blob()


def test_of_a_snapshot_and_a_deletion_one_wins(blob):
    for _ in range(20):
        calls = [blob.create_snapshot, blob.delete_blob]
        taken, deleted = race(2, lambda number: outcome(calls[number]))
        assert [taken[0], deleted[0]] in (["ok", 409], [404, "ok"])
        if taken[0] == "ok":
            blob.delete_blob(delete_snapshots="include")
        blob.upload_blob(b"again")
