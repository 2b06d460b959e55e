"""Optimistic concurrency: no lost updates, and one of many creators wins."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceModifiedError
from support import again, outcome, race, refused


def unchanged(tag):
    return {"etag": tag, "match_condition": MatchConditions.IfNotModified}


def changed(tag):
    return {"etag": tag, "match_condition": MatchConditions.IfModified}


def increment(blob):
    """Reads, adds one and writes under If-Match. Returns True, or None if another client was faster."""
    read = blob.download_blob()
    text = str(int(read.readall()) + 1)
    try:
        blob.upload_blob(text, overwrite=True, **unchanged(read.properties.etag))
    except ResourceModifiedError as error:
        assert (error.status_code, error.error_code) == (412, "ConditionNotMet")
        return None
    return True


def test_optimistic_updates_add_up(blob):
    blob.upload_blob("0", overwrite=True)
    race(6, lambda _: [again(lambda: increment(blob)) for _ in range(10)])
    assert blob.download_blob().readall() == b"60"


def test_counters_in_metadata_add_up(blob):
    blob.set_blob_metadata({"count": "0"})

    def add():
        now = blob.get_blob_properties()
        count = str(int(now.metadata["count"]) + 1)
        answer = outcome(lambda: blob.set_blob_metadata({"count": count}, **unchanged(now.etag)))
        assert answer in (("ok", None), (412, "ConditionNotMet"))
        return True if answer[0] == "ok" else None

    race(4, lambda _: [again(add) for _ in range(10)])
    assert blob.get_blob_properties().metadata == {"count": "40"}
    assert blob.download_blob().readall() == b"first"


def test_one_creator_wins(container):
    for attempt in range(5):
        blob = container.get_blob_client(f"created {attempt}")
        answers = race(6, lambda number: outcome(lambda: blob.upload_blob(f"by {number}")))
        assert sorted(map(str, answers)) == sorted(map(str, [(409, "BlobAlreadyExists")] * 5 + [("ok", None)]))
        winner = answers.index(("ok", None))
        assert blob.download_blob().readall() == f"by {winner}".encode()


def test_one_container_creator_wins(blobs, container):
    client = blobs.get_container_client(container.container_name + "-new")
    answers = race(6, lambda _: outcome(client.create_container))
    assert sorted(map(str, answers)) == sorted(map(str, [(409, "ContainerAlreadyExists")] * 5 + [("ok", None)]))


def test_a_stale_tag_replaces_nothing(blob):
    seen = blob.get_blob_properties().etag
    second = blob.upload_blob(b"the first editor's", overwrite=True, **unchanged(seen))["etag"]
    assert second != seen
    for late in (
        lambda: blob.upload_blob(b"the second editor's", overwrite=True, **unchanged(seen)),
        lambda: blob.set_blob_metadata({"editor": "second"}, **unchanged(seen)),
        lambda: blob.delete_blob(**unchanged(seen)),
        lambda: blob.download_blob(**unchanged(seen)),
    ):
        refused(late, 412, "ConditionNotMet")
    read = blob.download_blob()
    assert (read.readall(), read.properties.etag, read.properties.metadata) == (b"the first editor's", second, {})
    blob.delete_blob(**unchanged(second))


def test_every_write_has_a_new_tag(blob):
    tags = [blob.get_blob_properties().etag]
    for _ in range(3):
        tags.append(blob.upload_blob(b"the same bytes", overwrite=True)["etag"])
        tags.append(blob.set_blob_metadata({"a": "b"})["etag"])
    blob.delete_blob()
    tags.append(blob.upload_blob(b"the same bytes")["etag"])
    assert len(set(tags)) == len(tags) and tags[-1] == blob.get_blob_properties().etag


def test_a_cached_download_costs_a_304(blob):
    first = blob.download_blob()
    tag, content = first.properties.etag, first.readall()
    with pytest.raises(HttpResponseError) as unmodified:
        blob.download_blob(**changed(tag))
    assert unmodified.value.status_code == 304
    refused(lambda: blob.get_blob_properties(**changed(tag)), 304, "ConditionNotMet")
    blob.upload_blob(b"second", overwrite=True)
    second = blob.download_blob(**changed(tag))
    assert (content, second.readall()) == (b"first", b"second") and second.properties.etag != tag


def test_a_304_names_the_version_that_the_client_has(blob):
    tag = blob.get_blob_properties().etag
    for read in (blob.download_blob, blob.get_blob_properties):
        with pytest.raises(HttpResponseError) as unmodified:
            read(**changed(tag))
        assert unmodified.value.response.headers.get("etag") == tag


def test_readers_see_each_configuration_under_its_own_tag(blob):
    """One writer and many readers with a cache: tags match their content, and versions never go back."""
    written = {blob.get_blob_properties().etag: "first"}
    last = "version 20"

    def read(_):
        seen = []

        def poll():
            how = changed(seen[-1][0]) if seen else {}
            try:
                now = blob.download_blob(**how)
            except HttpResponseError as error:
                assert error.status_code == 304
                return None
            seen.append((now.properties.etag, now.readall().decode()))
            return True if seen[-1][1] == last else None

        again(poll, pause=0.001)
        return seen

    with ThreadPoolExecutor(6) as threads:
        readers = [threads.submit(read, number) for number in range(6)]
        tag = blob.get_blob_properties().etag
        for number in range(1, 21):
            text = f"version {number}"
            tag = blob.upload_blob(text, overwrite=True, **unchanged(tag))["etag"]
            written[tag] = text
    order = list(written.values())
    for seen in (reader.result() for reader in readers):
        assert all(written[tag] == text for tag, text in seen)
        versions = [order.index(text) for _, text in seen]
        assert versions == sorted(set(versions)), "a reader saw an older version again"
