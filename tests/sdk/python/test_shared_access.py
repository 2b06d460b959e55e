"""Shared access signatures that the SDKs make: what they grant, and what not."""

from datetime import datetime, timedelta, timezone

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import HttpResponseError
from azure.data.tables import TableServiceClient, UpdateMode, generate_table_sas
from azure.data.tables import generate_account_sas as generate_table_account_sas
from azure.storage.blob import (
    AccessPolicy,
    BlobLeaseClient,
    BlobServiceClient,
    generate_account_sas,
    generate_blob_sas,
    generate_container_sas,
)
from support import OPTIONS, outcome, refused

DENIED = (403, "AuthorizationPermissionMismatch")
LATER = datetime.now(timezone.utc) + timedelta(hours=1)


def with_token(service, token):
    """Returns a client of the same service that has nothing but the signature."""
    kind = BlobServiceClient if isinstance(service, BlobServiceClient) else TableServiceClient
    options = {"account_url" if kind is BlobServiceClient else "endpoint": service.url.split("?")[0]}
    return kind(**options, credential=AzureSasCredential(token), **OPTIONS)


def key(service):
    return {"account_name": service.account_name, "account_key": service.credential.account_key}


def test_a_signature_for_a_blob(blobs, container, blob):
    token = generate_blob_sas(
        container_name=container.container_name, blob_name=blob.blob_name, permission="r", expiry=LATER,
        content_type="text/plain", content_disposition="inline", **key(blobs),
    )
    own = with_token(blobs, token).get_blob_client(container.container_name, blob.blob_name)
    assert own.download_blob().readall() == b"first"
    assert own.get_blob_properties().content_settings.content_type == "text/plain"
    assert outcome(lambda: own.upload_blob(b"second", overwrite=True)) == DENIED
    assert outcome(own.delete_blob) == DENIED
    assert outcome(own.acquire_lease) == DENIED
    container.get_blob_client("other").upload_blob(b"secret")
    other = with_token(blobs, token).get_blob_client(container.container_name, "other")
    refused(lambda: other.download_blob(), 403, "AuthenticationFailed")
    assert blob.download_blob().readall() == b"first"


@pytest.mark.parametrize("name", ["a b", "ü/日本", "100%+&=#?", "quote's"])
def test_signatures_for_names_with_special_characters(blobs, container, name):
    own = key(blobs) | {"container_name": container.container_name, "blob_name": name}
    token = generate_blob_sas(permission="rcw", expiry=LATER, **own)
    blob = with_token(blobs, token).get_blob_client(container.container_name, name)
    blob.upload_blob(b"bytes")
    assert blob.download_blob().readall() == b"bytes"


def test_a_signature_for_a_container(blobs, container, blob):
    own = key(blobs) | {"container_name": container.container_name}
    token = generate_container_sas(permission="racwdl", expiry=LATER, **own)
    client = with_token(blobs, token).get_container_client(container.container_name)
    client.get_blob_client("new").upload_blob(bytes(5 << 20), max_concurrency=2)
    assert {entry.name for entry in client.list_blobs()} == {"blob", "new"}
    lease = client.get_blob_client("blob").acquire_lease(15)
    refused(lambda: client.get_blob_client("blob").upload_blob(b"x", overwrite=True), 412, "LeaseIdMissing")
    client.get_blob_client("blob").upload_blob(b"x", overwrite=True, lease=lease)
    lease.release()
    assert outcome(client.acquire_lease) == DENIED
    assert outcome(client.delete_container) == DENIED
    assert outcome(lambda: client.set_container_metadata({"a": "b"})) == DENIED
    assert outcome(client.get_container_properties) == DENIED


def test_a_signature_to_create_does_not_replace(blobs, container, blob):
    own = key(blobs) | {"container_name": container.container_name}
    client = with_token(blobs, generate_container_sas(permission="c", expiry=LATER, **own))
    client.get_blob_client(container.container_name, "new").upload_blob(b"mine")
    existing = client.get_blob_client(container.container_name, "blob")
    refused(lambda: existing.upload_blob(b"mine", overwrite=True), 403, "UnauthorizedBlobOverwrite")
    assert blob.download_blob().readall() == b"first"


def test_a_signature_to_delete_breaks_leases(blobs, container, blob):
    own = key(blobs) | {"container_name": container.container_name}
    client = with_token(blobs, generate_container_sas(permission="d", expiry=LATER, **own))
    blob.acquire_lease(60)
    mine = client.get_blob_client(container.container_name, "blob")
    BlobLeaseClient(mine).break_lease(0)
    mine.delete_blob()


def test_a_copy_needs_a_signature_for_its_source(blobs, container, blob):
    own = key(blobs) | {"container_name": container.container_name}
    write = generate_container_sas(permission="w", expiry=LATER, **own)
    create = generate_container_sas(permission="c", expiry=LATER, **own)
    read = generate_blob_sas(permission="r", expiry=LATER, blob_name=blob.blob_name, **own)
    url = blob.url.split("?")[0]

    def copy(token, name, source):
        return with_token(blobs, token).get_blob_client(container.container_name, name).upload_blob_from_url(source)

    target = container.get_blob_client("target")
    refused(lambda: copy(write, "target", url), 401, "NoAuthenticationInformation")
    for source in [f"{url}?{write}", f"{url}?{read[:-3]}AAA"]:
        refused(lambda: copy(write, "target", source), 403)
    container.get_blob_client("secret").upload_blob(b"secret")
    secret = container.get_blob_client("secret").url.split("?")[0]
    refused(lambda: copy(write, "target", f"{secret}?{read}"), 403, "AuthenticationFailed")
    assert not target.exists()
    copy(write, "target", f"{url}?{read}")
    assert target.download_blob().readall() == b"first"
    refused(lambda: copy(create, "secret", f"{url}?{read}"), 403, "UnauthorizedBlobOverwrite")
    assert outcome(lambda: copy(read, blob.blob_name, f"{url}?{read}")) == DENIED


def test_each_part_of_a_batch_needs_its_own_permission(blobs, container, blob):
    own = key(blobs) | {"container_name": container.container_name}
    container.get_blob_client("other").upload_blob(b"x")

    def client(permission):
        token = generate_container_sas(permission=permission, expiry=LATER, **own)
        return with_token(blobs, token).get_container_client(container.container_name)

    for permission in ("w", "rl"):
        with pytest.raises(HttpResponseError):
            client(permission).delete_blobs("blob", "other")
    assert {entry.name for entry in container.list_blobs()} == {"blob", "other"}
    client("d").delete_blobs("blob", "other")
    assert not list(container.list_blobs())


def test_a_signature_for_an_account(blobs, container, blob):
    sign = lambda kinds, permission: generate_account_sas(
        resource_types=kinds, permission=permission, expiry=LATER, **key(blobs)
    )
    everything = with_token(blobs, sign("sco", "rwdlac"))
    assert container.container_name in {entry.name for entry in everything.list_containers()}
    everything.get_container_client(container.container_name).acquire_lease(15).release()
    objects = with_token(blobs, sign("o", "rl"))
    assert objects.get_blob_client(container.container_name, "blob").download_blob().readall() == b"first"
    refused(lambda: list(objects.list_containers()), 403, "AuthorizationResourceTypeMismatch")
    refused(lambda: list(objects.get_container_client(container.container_name).list_blobs()), 403)


def test_a_signature_counts_only_between_its_times(blobs, container, blob):
    own = key(blobs) | {"container_name": container.container_name, "permission": "r"}
    now = datetime.now(timezone.utc)
    for start, end in [(None, now - timedelta(minutes=1)), (now + timedelta(minutes=30), LATER)]:
        client = with_token(blobs, generate_container_sas(start=start, expiry=end, **own))
        read = client.get_blob_client(container.container_name, "blob").download_blob
        refused(read, 403, "AuthenticationFailed")
    token = generate_container_sas(start=now - timedelta(minutes=30), expiry=LATER, **own)
    with_token(blobs, token).get_blob_client(container.container_name, "blob").download_blob()


def named(tables):
    credential = tables.credential
    return AzureNamedKeyCredential(credential.named_key.name, credential.named_key.key)


def test_a_signature_for_a_table(tables, table):
    for row in ["a", "b", "c"]:
        table.create_entity({"PartitionKey": "p", "RowKey": row})
    sign = lambda permission, **keys: generate_table_sas(
        named(tables), table.table_name, permission=permission, expiry=LATER, **keys
    )
    client = lambda *given, **keys: with_token(tables, sign(*given, **keys)).get_table_client(table.table_name)
    assert len(list(client("r").list_entities())) == 3
    entity = {"PartitionKey": "p", "RowKey": "d", "a": 1}
    for permission, allowed in [("r", 0), ("a", 1), ("u", 0), ("d", 0)]:
        result = outcome(lambda permission=permission: client(permission).create_entity(entity))
        assert result == (("ok", None) if allowed else DENIED), permission
    assert outcome(lambda: client("a").upsert_entity(entity)) == DENIED
    assert outcome(lambda: client("u").upsert_entity(entity)) == DENIED
    client("au").upsert_entity(entity, mode=UpdateMode.REPLACE)
    client("u").update_entity(entity)
    assert outcome(lambda: client("rau").delete_entity(entity)) == DENIED
    client("d").delete_entity(entity)
    limits = {"start_pk": "p", "start_rk": "b", "end_pk": "p", "end_rk": "b"}
    narrow = client("raud", **limits)
    assert [one["RowKey"] for one in narrow.list_entities()] == ["b"]
    assert [one["RowKey"] for one in narrow.query_entities("PartitionKey eq 'p'", results_per_page=1)] == ["b"]
    for row in ["a", "c"]:
        refused(lambda row=row: narrow.get_entity("p", row), 403)
        refused(lambda row=row: narrow.upsert_entity({"PartitionKey": "p", "RowKey": row}), 403)
        refused(lambda row=row: narrow.delete_entity("p", row), 403)
    narrow.update_entity({"PartitionKey": "p", "RowKey": "b", "x": 1})
    refused(lambda: narrow.create_entity({"PartitionKey": "q", "RowKey": "b"}), 403)


def test_a_signature_for_another_table(tables, table):
    token = generate_table_sas(named(tables), "another", permission="raud", expiry=LATER)
    client = with_token(tables, token)
    refused(lambda: list(client.get_table_client(table.table_name).list_entities()), 403)
    assert outcome(client.get_table_client("another").delete_table) != ("ok", None)


def test_an_account_signature_for_tables(tables, table):
    token = generate_table_account_sas(named(tables), resource_types="sco", permission="rwdlacu", expiry=LATER)
    client = with_token(tables, token)
    assert table.table_name in {one.name for one in client.list_tables()}
    client.get_table_client(table.table_name).create_entity({"PartitionKey": "p", "RowKey": "r"})
    client.delete_table(table.table_name)


def test_a_policy_revokes_its_signatures(blobs, container, blob):
    own = key(blobs) | {"container_name": container.container_name}
    token = generate_container_sas(policy_id="readers", **own)
    client = with_token(blobs, token).get_container_client(container.container_name)
    refused(lambda: client.download_blob("blob"), 403, "AuthenticationFailed")
    container.set_container_access_policy({"readers": AccessPolicy(permission="rl", expiry=LATER)})
    policy = container.get_container_access_policy()
    assert policy["public_access"] is None
    assert [(each.id, each.access_policy.permission) for each in policy["signed_identifiers"]] == [("readers", "rl")]
    assert client.download_blob("blob").readall() == b"first"
    assert [entry.name for entry in client.list_blobs()] == ["blob"]
    assert outcome(lambda: client.upload_blob("blob", b"x", overwrite=True)) == DENIED
    both = with_token(blobs, generate_container_sas(policy_id="readers", permission="r", **own))
    refused(lambda: both.get_blob_client(container.container_name, "blob").download_blob(), 403, "AuthenticationFailed")
    container.set_container_access_policy({})
    refused(lambda: client.download_blob("blob"), 403, "AuthenticationFailed")
    refused(lambda: container.set_container_access_policy({}, public_access="blob"), 409, "PublicAccessNotPermitted")
