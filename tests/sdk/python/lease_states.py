"""Blobs and containers in every lease state, with A as the current or former holder."""

import uuid

from azure.storage.blob import BlobLeaseClient
from support import again

A = "a0000000-0000-4000-8000-00000000000a"
B = "b0000000-0000-4000-8000-00000000000b"
C = "c0000000-0000-4000-8000-00000000000c"
IDS = {"a": A, "b": B, "c": C}


def properties(client):
    return client.get_blob_properties() if is_blob(client) else client.get_container_properties()


def is_blob(client):
    return hasattr(client, "blob_name")


def new(blobs, kind):
    """Creates a container, or a blob in a new container."""
    container = blobs.create_container(f"python-{uuid.uuid4()}")
    if kind == "container":
        return container
    blob = container.get_blob_client("blob")
    blob.upload_blob(b"first")
    return blob


def in_state(blobs, kind, state):
    """Creates a resource in a state that needs no waiting."""
    client = new(blobs, kind)
    if state != "available":
        BlobLeaseClient(client, A).acquire(-1)
    if state == "breaking":
        BlobLeaseClient(client, A).break_lease(60)
    if state == "broken":
        BlobLeaseClient(client, A).break_lease(0)
    assert properties(client).lease.state == state
    return client


def expired(blobs, cases):
    """Creates a resource with an expired lease for each case `(kind, name)`. All leases expire at the same time."""
    clients = {case: new(blobs, case[0]) for case in cases}
    for client in clients.values():
        BlobLeaseClient(client, A).acquire(15)
    for client in clients.values():
        again(lambda client=client: properties(client).lease.state == "expired" or None)
    return clients
