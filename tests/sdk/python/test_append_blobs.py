"""Append blobs: positions, conditions, leases and types."""

import pytest
from azure.core import MatchConditions
from support import outcome, race, refused

POSITION = (412, "AppendPositionConditionNotMet")


@pytest.fixture
def log(container):
    log = container.get_blob_client("log")
    log.create_append_blob()
    return log


def test_appends_report_their_offset(container, log):
    assert log.append_block(b"one")["blob_append_offset"] == "0"
    second = log.append_block(b"two")
    assert (second["blob_append_offset"], second["blob_committed_block_count"]) == ("3", 2)
    properties = log.get_blob_properties()
    assert (properties.blob_type, properties.size, properties.append_blob_committed_block_count) == ("AppendBlob", 6, 2)
    assert log.download_blob().readall() == b"onetwo"
    assert [entry.blob_type for entry in container.list_blobs()] == ["AppendBlob"]


def test_uploads_append(log):
    data = bytes(range(256)) * 20_000
    log.upload_blob(data, blob_type="AppendBlob", overwrite=True)
    log.upload_blob(b"more", blob_type="AppendBlob")
    assert log.download_blob().readall() == data + b"more"


def test_an_append_obeys_its_conditions(log):
    log.append_block(b"12345", appendpos_condition=0)
    assert outcome(lambda: log.append_block(b"x", appendpos_condition=4)) == POSITION
    refused(lambda: log.append_block(b"xx", maxsize_condition=6), 412, "MaxBlobSizeConditionNotMet")
    stale = log.get_blob_properties().etag
    log.append_block(b"6", maxsize_condition=6, etag=stale, match_condition=MatchConditions.IfNotModified)
    refused(lambda: log.append_block(b"x", etag=stale, match_condition=MatchConditions.IfNotModified), 412)
    lease = log.acquire_lease(15)
    refused(lambda: log.append_block(b"x"), 412, "LeaseIdMissing")
    log.append_block(b"7", lease=lease, validate_content=True)
    assert log.download_blob().readall() == b"1234567"


def test_one_append_at_a_position_wins(log):
    outcomes = race(8, lambda number: outcome(lambda: log.append_block(str(number), appendpos_condition=0))[0])
    assert sorted(map(str, outcomes)) == ["412"] * 7 + ["ok"]
    assert log.download_blob().readall() == str(outcomes.index("ok")).encode()


def test_a_block_from_another_blob(blob, log):
    source = blob.url
    part = {"source_offset": 1, "source_length": 3}
    assert log.append_block_from_url(source, **part, appendpos_condition=0)["blob_append_offset"] == "0"
    assert outcome(lambda: log.append_block_from_url(source, appendpos_condition=0)) == POSITION
    log.append_block_from_url(source)
    assert log.download_blob().readall() == b"irsfirst"


def test_one_block_from_another_blob_at_a_position_wins(blob, log):
    outcomes = race(8, lambda _: outcome(lambda: log.append_block_from_url(blob.url, appendpos_condition=0))[0])
    assert sorted(map(str, outcomes)) == ["412"] * 7 + ["ok"]
    assert log.download_blob().readall() == b"first"


def test_a_sealed_blob_stays_as_it_is(log):
    log.append_block(b"one")
    assert outcome(lambda: log.seal_append_blob(appendpos_condition=1)) == POSITION
    assert log.seal_append_blob(appendpos_condition=3)["blob_sealed"]
    refused(lambda: log.append_block(b"x"), 409, "BlobIsSealed")
    assert log.get_blob_properties().is_append_blob_sealed


def test_other_types_refuse_each_others_operations(log, blob):
    refused(lambda: blob.append_block(b"x"), 409, "InvalidBlobType")
    refused(lambda: log.stage_block("AA==", b"x"), 409, "InvalidBlobType")
    refused(log.get_block_list, 409, "InvalidBlobType")
