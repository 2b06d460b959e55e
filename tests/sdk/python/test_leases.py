"""Leases beyond the tables: time, ids and protection."""

import time

import pytest
from azure.storage.blob import BlobClient, BlobLeaseClient
from lease_states import A, properties
from support import OPTIONS, again, guid, outcome, refused


def acquired(client, duration, id=None):
    lease = BlobLeaseClient(client, id or guid())
    lease.acquire(duration)
    return lease


@pytest.mark.waits
def test_a_lease_lasts_its_time_and_no_longer(blob):
    before = time.monotonic()
    acquired(blob, 15)
    early = outcome(lambda: acquired(blob, 15))
    # On a busy machine the lease may have ended by then.
    assert early == (409, "LeaseAlreadyPresent") or time.monotonic() - before >= 14
    again(lambda: outcome(lambda: acquired(blob, 15))[0] == "ok" or None)
    # Measured from before the lease began, so it cannot end earlier. Some servers count whole seconds.
    assert time.monotonic() - before >= 14


@pytest.mark.waits
def test_a_renewed_lease_lasts_longer(blob):
    lease = acquired(blob, 15)
    time.sleep(8)
    renewed = time.monotonic()
    lease.renew()
    again(lambda: properties(blob).lease.state == "expired" or None)
    assert time.monotonic() - renewed >= 14


@pytest.mark.waits
def test_an_expired_lease_can_be_renewed_until_a_write(container):
    touched, left, changed = (container.get_blob_client(name) for name in ("touched", "left", "changed"))
    leases = {}
    for blob in (touched, left, changed):
        blob.upload_blob(b"first")
        leases[blob] = acquired(blob, 30)
    for blob in leases:
        again(lambda blob=blob: properties(blob).lease.state == "expired" or None)
    touched.upload_blob(b"second", overwrite=True)
    changed.set_blob_metadata({"by": "another"})
    leases[left].renew()
    assert properties(left).lease.state == "leased"
    for blob in (touched, changed):
        refused(leases[blob].renew, 409, "LeaseIdMismatchWithLeaseOperation")
        assert properties(blob).lease.state == "available"


@pytest.mark.waits
def test_a_break_without_a_period_waits_for_the_rest_of_the_lease(blob):
    acquired(blob, 60, A)
    left = BlobLeaseClient(blob).break_lease()
    assert 0 < left <= 60
    lease = properties(blob).lease
    assert (lease.state, lease.status) == ("breaking", "locked")
    refused(lambda: blob.upload_blob(b"x", overwrite=True), 412, "LeaseIdMissing")
    blob.upload_blob(b"the holder's last words", overwrite=True, lease=A)
    again(lambda: properties(blob).lease.state == "broken" or None)
    blob.upload_blob(b"free", overwrite=True)
    assert properties(blob).lease.state == "available"


def test_a_lease_shows_in_properties_and_in_lists(container, blob):
    acquired(blob, 60)
    listed = next(container.list_blobs())
    for lease in (properties(blob).lease, listed.lease):
        assert (lease.status, lease.state, lease.duration) == ("locked", "leased", "fixed")


def test_deleting_a_blob_drops_its_lease(blob):
    lease = acquired(blob, -1)
    blob.delete_blob(lease=lease)
    blob.upload_blob(b"another")
    assert properties(blob).lease.state == "available"
    refused(lambda: blob.upload_blob(b"x", overwrite=True, lease=lease), 412, "LeaseNotPresentWithBlobOperation")


def test_every_kind_of_write_needs_the_lease(blob):
    blob.stage_block("MDAwMQ==", b"staged")
    lease = acquired(blob, -1)
    for write in (
        lambda **how: blob.stage_block("MDAwMg==", b"staged", **how),
        lambda **how: blob.commit_block_list(["MDAwMg=="], **how),
        lambda **how: blob.set_http_headers(**how),
        lambda **how: blob.set_blob_metadata({}, **how),
        lambda **how: blob.upload_blob(b"x", overwrite=True, **how),
    ):
        refused(write, 412, "LeaseIdMissing")
        refused(lambda: write(lease=guid()), 412, "LeaseIdMismatchWithBlobOperation")
        write(lease=lease)


def test_the_holder_uploads_without_overwrite(blob):
    """The client sends If-None-Match: * together with the id."""
    lease = acquired(blob, -1)
    blob.upload_blob(b"second", lease=lease)
    assert blob.download_blob().readall() == b"second"
    sizes = {"max_single_put_size": 4, "max_block_size": 4}
    in_blocks = BlobClient.from_blob_url(blob.url, credential=blob.credential, **OPTIONS, **sizes)
    in_blocks.upload_blob(b"in blocks", lease=lease)
    assert blob.download_blob().readall() == b"in blocks"
    refused(lambda: blob.upload_blob(b"third"), 412, "LeaseIdMissing")


def test_a_container_lease_protects_from_deletion_only(container):
    lease = acquired(container, -1)
    blob = container.upload_blob("inside", b"x")
    blob.upload_blob(b"y", overwrite=True)
    blob.delete_blob()
    assert [item.name for item in container.list_blobs()] == []
    container.set_container_metadata({"colour": "red"})
    refused(lambda: container.delete_container(), 412, "LeaseIdMissing")
    refused(lambda: container.delete_container(lease=guid()), 412, "LeaseIdMismatchWithContainerOperation")
    container.delete_container(lease=lease)
    refused(container.get_container_properties, 404, "ContainerNotFound")
