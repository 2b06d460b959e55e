"""Requests that no client sends (../cases/bad-requests.json): each gets its documented code and changes nothing."""

import base64
import json
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import TableClient
from azure.storage.blob import BlobClient
from lease_states import properties
from raw import Raw
from support import OPTIONS, outcome, parametrize, refused

CASES = json.loads((Path(__file__).parent.parent / "cases" / "bad-requests.json").read_text())


@contextmanager
def untouched(blob):
    """Checks that the blob, its lease and its staged block do not change."""
    blob.stage_block("0001", b"staged")
    before = state(blob)
    yield
    assert state(blob) == before


def state(blob):
    known = properties(blob)
    staged = [block.id for block in blob.get_block_list("uncommitted")[1]]
    return known.etag, known.last_modified, known.metadata, known.lease.state, staged, blob.download_blob().readall()


@parametrize(CASES, lambda row: row["case"])
def test_bad_request(row, blob, container):
    to = Raw(container if row.get("on") == "container" else blob)
    with untouched(blob):
        answer = to.send(row.get("method", "PUT"), row.get("query", {}), row.get("headers", {}), row.get("body", ""))
        answer.check(row["status"], *filter(None, [row.get("code")]))
    assert properties(container).lease.state == "available"


WRITE = {"x-ms-blob-type": "BlockBlob"}


@pytest.mark.parametrize("skew", [timedelta(minutes=-16), timedelta(minutes=16)], ids=["early", "late"])
def test_clock_skew(blob, skew):
    with untouched(blob):
        Raw(blob).send("PUT", headers=WRITE, body="changed", skew=skew).check(403, "AuthenticationFailed")


def test_a_small_clock_skew_is_accepted(blob):
    Raw(blob).send("PUT", headers=WRITE, body="changed", skew=timedelta(minutes=-14)).check(201)


def tampered(signature):
    return signature[:-8] + ("A" if signature[-8] != "A" else "B") + signature[-7:]


SIGNATURES = {
    "one character changed": tampered,
    "cut off": lambda signature: signature[:-4],
    "empty": lambda signature: signature.partition(":")[0] + ":",
    "not base64": lambda signature: signature.partition(":")[0] + ":!!!",
    "of another account": lambda signature: signature.replace("SharedKey ", "SharedKey another"),
    "of an unknown scheme": lambda signature: signature.replace("SharedKey", "SharedKeyHeavy"),
}


@pytest.mark.parametrize("change", SIGNATURES)
def test_signature(blob, change):
    with untouched(blob):
        answer = Raw(blob).send("PUT", headers=WRITE, body="changed", sign=SIGNATURES[change])
    refusals = [(400, "InvalidAuthenticationInfo"), (403, "AuthenticationFailed")]
    assert (answer.status, answer.code) in refusals, f"{answer.status} {answer.code}"


def test_without_a_signature(blob):
    with untouched(blob):
        answer = Raw(blob).send("PUT", headers=WRITE, body="changed", sign=lambda _: None)
    assert answer.status in (401, 403, 404), answer.status


def test_a_signature_is_valid_for_its_request_only(blob, container):
    """Each request carries the signature of a valid request of the same second."""
    ranged, raw = {"x-ms-range": "bytes=0-0"}, Raw(blob)
    other = Raw(container.get_blob_client("other"))
    for to, method, query, headers, body in (
        (raw, "PUT", {}, WRITE, "changed"),
        (raw, "DELETE", {}, ranged, ""),
        (raw, "GET", {}, {"x-ms-range": "bytes=0-1"}, ""),
        (raw, "GET", {"comp": "metadata"}, ranged, ""),
        (other, "GET", {}, ranged, ""),
    ):
        right = raw.signed("GET", {}, ranged, b"")
        wrong = to.signed(method, query, headers, body.encode(), like=right)
        raw.exchange("GET", {}, right, b"").check(206)
        with untouched(blob):
            to.exchange(method, query, wrong, body.encode()).check(403, "AuthenticationFailed")


def test_invalid_container_names(blobs):
    for name in ("ab", "Upper", "under_score", "double--hyphen", "-begins", "x" * 64):
        status, code = outcome(lambda: blobs.create_container(name))
        assert status == 400 and code in ("InvalidResourceName", "OutOfRangeInput", "InvalidUri"), f"{name}: {status} {code}"


WRONG = base64.b64encode(b"another key").decode()


def test_a_wrong_key_gives_no_access_to_blobs(blobs, blob):
    stranger = BlobClient.from_blob_url(blob.url, {"account_name": blob.account_name, "account_key": WRONG}, **OPTIONS)
    with untouched(blob):
        refused(lambda: stranger.upload_blob(b"changed", overwrite=True), 403, "AuthenticationFailed")
        refused(stranger.get_blob_properties, 403)


def test_a_wrong_key_gives_no_access_to_tables(table):
    credential = AzureNamedKeyCredential(table.account_name, WRONG)
    stranger = TableClient(table.url, table.table_name, credential=credential, **OPTIONS)
    refused(lambda: stranger.create_entity({"PartitionKey": "p", "RowKey": "r"}), 403, "AuthenticationFailed")
    refused(lambda: list(stranger.list_entities()), 403, "AuthenticationFailed")
    assert list(table.list_entities()) == []


FILTERS = ["number lt", "number lt 3 and", "(number lt 3", "number is 3", "'unended", "number eq 1 2"]


@pytest.mark.parametrize("text", FILTERS)
def test_bad_filter(table, text):
    table.create_entity({"PartitionKey": "p", "RowKey": "r", "number": 1})
    refused(lambda: list(table.query_entities(text)), 400)


def test_a_deeply_nested_filter_is_rejected(table):
    table.create_entity({"PartitionKey": "p", "RowKey": "r", "number": 1})
    status, _ = outcome(lambda: list(table.query_entities("(" * 2000 + "number eq 1" + ")" * 2000)))
    assert status == "ok" or 400 <= status < 500
    assert len(list(table.list_entities())) == 1
