"""Content, names, listings and headers of blobs."""

import hashlib
import random

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobBlock, BlobClient, ContentSettings, StandardBlobTier
from support import OPTIONS, again, outcome, parametrize, refused

MIB = 1 << 20
NAMES = [
    "plain",
    "with spaces  in it",
    "ünïcödé/日本語/🦀",
    "a/b/c/d.txt",
    "empty//segments",
    "100% of a+b=c&d?e#f",
    "quote's \"and\" [brackets] {braces}",
    "trailing.dot./x",
    "a folder's marker/",
    "x" * 1024,
]


def in_blocks(blob, size):
    """Returns a client that transfers blocks of this size."""
    sizes = ("max_single_put_size", "max_block_size", "max_single_get_size", "max_chunk_get_size")
    return BlobClient.from_blob_url(blob.url, credential=blob.credential, **OPTIONS, **dict.fromkeys(sizes, size))


def test_a_large_blob_by_blocks_in_parallel(container):
    data = random.Random(1).randbytes(64 * MIB)
    blob = in_blocks(container.get_blob_client("large"), 4 * MIB)
    # Both suites run at once, and the Worker rejects bodies of more than 32 MiB in all.
    blob.upload_blob(data, max_concurrency=2)
    assert blob.get_blob_properties().size == len(data)
    read = hashlib.sha256(blob.download_blob(max_concurrency=4).readall())
    assert read.hexdigest() == hashlib.sha256(data).hexdigest()


def test_a_stream_of_unknown_length(container):
    blob = in_blocks(container.get_blob_client("blob"), MIB)
    blob.upload_blob(bytes([number]) * (MIB // 2) for number in range(7))
    assert blob.download_blob().readall() == b"".join(bytes([number]) * (MIB // 2) for number in range(7))


def test_checked_transfers(container):
    """The client sends a hash with its writes and checks the hash of its reads."""
    blob = in_blocks(container.get_blob_client("blob"), MIB)
    data = random.Random(2).randbytes(3 * MIB + 1)
    blob.upload_blob(data, validate_content=True)
    assert blob.download_blob(validate_content=True).readall() == data


def test_metadata_comes_with_every_block(container):
    """The client sends the blob's metadata with the list and with each block."""
    blob = in_blocks(container.get_blob_client("blob"), MIB)
    blob.upload_blob(b"x" * 3 * MIB, metadata={"colour": "red"})
    assert blob.get_blob_properties().metadata == {"colour": "red"}


def md5(data):
    return bytearray(hashlib.md5(data).digest())


def known_md5(blob):
    return blob.get_blob_properties().content_settings.content_md5


def test_a_blob_has_the_md5_of_its_bytes(container):
    blob = container.get_blob_client("blob")
    blob.upload_blob(b"first")
    assert known_md5(blob) == md5(b"first"), "it is computed"
    blob.upload_blob(b"second", overwrite=True, content_settings=ContentSettings(content_md5=md5(b"second")))
    assert known_md5(blob) == md5(b"second"), "it is given"
    [listed] = container.list_blobs()
    assert listed.content_settings.content_md5 == md5(b"second")
    assert blob.download_blob(1, 2).properties.content_settings.content_md5 == md5(b"second"), "of the whole blob"
    wrong = ContentSettings(content_md5=md5(b"third"))
    refused(lambda: blob.upload_blob(b"damaged", overwrite=True, content_settings=wrong), 400)
    assert blob.download_blob().readall() == b"second"


def test_a_blob_of_blocks_has_the_md5_that_is_given(container):
    blob = in_blocks(container.get_blob_client("blob"), MIB)
    blob.upload_blob(b"x" * 2 * MIB)
    assert known_md5(blob) is None, "it was not computed"
    data = b"y" * 2 * MIB
    blob.upload_blob(data, overwrite=True, content_settings=ContentSettings(content_md5=md5(data)))
    assert known_md5(blob) == md5(data)
    blob.set_blob_metadata({"colour": "red"})
    assert known_md5(blob) == md5(data), "metadata is something else"
    blob.set_http_headers(ContentSettings(content_type="text/plain"))
    assert known_md5(blob) is None, "properties are replaced together"


def test_a_listing_includes_what_there_is(container):
    container.upload_blob("blob", b"x", metadata={"colour": "red"})
    wanted = ["copy", "deleted", "metadata", "snapshots", "tags", "uncommittedblobs", "versions"]
    [listed] = container.list_blobs(include=wanted)
    assert (listed.name, listed.metadata, listed.snapshot, listed.deleted) == ("blob", {"colour": "red"}, None, None)


def test_a_download_never_mixes_two_versions(container):
    blob = in_blocks(container.get_blob_client("blob"), MIB)
    blob.upload_blob(b"a" * 4 * MIB)
    begun = blob.download_blob()
    blob.upload_blob(b"b" * 4 * MIB, overwrite=True)
    with pytest.raises(HttpResponseError) as torn:
        begun.readall()
    assert (torn.value.status_code, torn.value.error_code) == (412, "ConditionNotMet")


def test_an_empty_blob(container):
    blob = container.get_blob_client("empty")
    blob.upload_blob(b"")
    assert blob.get_blob_properties().size == 0
    assert blob.download_blob().readall() == b""


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.encode("ascii", "backslashreplace").decode()[:40])
def test_name(container, name):
    blob = container.get_blob_client(name)
    blob.upload_blob(name.encode())
    assert blob.download_blob().readall() == name.encode()
    assert [item.name for item in container.list_blobs()] == [name]
    refused(container.get_blob_client("~" + name[1:]).get_blob_properties, 404, "BlobNotFound")
    blob.delete_blob()
    assert not blob.exists()


def test_lists_by_prefix_delimiter_and_page(container):
    names = sorted(f"{folder}/{number}" for folder in ("a", "b", "b c", "ü") for number in range(5)) + ["top"]
    for name in names:
        container.upload_blob(name, name)
    assert [item.name for item in container.list_blobs()] == sorted(names)
    assert [item.name for item in container.list_blobs(name_starts_with="b")] == sorted(n for n in names if n[0] == "b")
    assert sorted(item.name for item in container.walk_blobs()) == ["a/", "b c/", "b/", "top", "ü/"]
    assert [item.name for item in container.walk_blobs(name_starts_with="b/")] == [f"b/{number}" for number in range(5)]
    pages = [[item.name for item in page] for page in container.list_blobs(results_per_page=4).by_page()]
    assert sum(pages, []) == sorted(names) and max(map(len, pages)) == 4
    assert list(container.list_blobs(name_starts_with="none")) == []


def test_a_list_goes_on_where_it_stopped(container):
    for number in range(5):
        container.upload_blob(f"{number}", b"")
    pages = container.list_blobs(results_per_page=2).by_page()
    assert [item.name for item in next(pages)] == ["0", "1"]
    later = container.list_blobs(results_per_page=2).by_page(pages.continuation_token)
    assert [[item.name for item in page] for page in later] == [["2", "3"], ["4"]]


def test_lists_tell_what_properties_tell(blob, container):
    blob.set_http_headers(ContentSettings(content_type="text/plain", cache_control="no-cache"))
    blob.set_blob_metadata({"colour": "red"})
    [listed] = container.list_blobs(include=["metadata"])
    known = blob.get_blob_properties()
    assert listed.etag == known.etag.strip('"'), "in a list it stands without quotes"
    for name in ("size", "last_modified", "blob_type", "metadata"):
        assert getattr(listed, name) == getattr(known, name), name
    for name in ("content_type", "cache_control"):
        assert listed.content_settings[name] == known.content_settings[name], name


def test_metadata_and_headers(container):
    blob = container.get_blob_client("blob")
    settings = {
        "content_type": "text/plain; charset=utf-8",
        "content_language": "en",
        "content_disposition": 'attachment; filename="x"',
        "cache_control": "max-age=60",
    }
    blob.upload_blob(b"x", metadata={"colour": "red", "Shape": "round"}, content_settings=ContentSettings(**settings))
    known = blob.get_blob_properties()
    assert {name: known.content_settings[name] for name in settings} == settings
    assert {name.lower(): value for name, value in known.metadata.items()} == {"colour": "red", "shape": "round"}
    blob.set_blob_metadata({"colour": "blue"})
    blob.set_http_headers(ContentSettings(content_type="text/html"))
    known = blob.download_blob().properties
    assert known.metadata == {"colour": "blue"}, "metadata is replaced as a whole"
    assert known.content_settings["content_type"] == "text/html" and known.content_settings["cache_control"] is None
    blob.upload_blob(b"y", overwrite=True)
    assert blob.get_blob_properties().metadata == {}, "a new blob begins without"


RANGES = [
    {"range": (0, 1), "content": b"0"},
    {"range": (2, 3), "content": b"234"},
    {"range": (7, 100), "content": b"789"},
    {"range": (9, None), "content": b"9"},
    {"range": (0, None), "content": b"0123456789"},
]


@parametrize(RANGES, lambda row: str(row["range"]))
def test_range(container, row):
    blob = container.get_blob_client("blob")
    blob.upload_blob(b"0123456789")
    read = blob.download_blob(*row["range"])
    assert read.readall() == row["content"] and read.properties.size == len(row["content"])


@pytest.mark.parametrize("start", [5, 100])
def test_range_behind_the_end(blob, start):
    refused(lambda: blob.download_blob(start, 1), 416, "InvalidRange")


def test_blocks_are_committed_in_the_order_of_the_list(container):
    blob = container.get_blob_client("blob")
    for number in (3, 1, 2):
        blob.stage_block(f"{number:04}", f"[{number}]")
    committed, staged = blob.get_block_list("all")
    assert (committed, sorted(block.id for block in staged)) == ([], ["0001", "0002", "0003"])
    assert not blob.exists(), "staged blocks are no blob yet"
    blob.commit_block_list([BlobBlock(f"{number:04}") for number in (1, 3, 1)], metadata={"colour": "red"})
    assert blob.download_blob().readall() == b"[1][3][1]"
    assert blob.get_blob_properties().metadata == {"colour": "red"}
    committed, staged = blob.get_block_list("all")
    assert ([block.id for block in committed], staged) == (["0001", "0003", "0001"], []), "blocks that are not in the list are discarded"
    blob.stage_block("0004", b"[4]")
    blob.commit_block_list([BlobBlock("0003"), BlobBlock("0004")])
    assert blob.download_blob().readall() == b"[3][4]", "committed blocks can be used again"


def test_blocks_replace_a_blob_only_on_its_condition(blob):
    seen = blob.get_blob_properties().etag
    blob.stage_block("0001", b"blocks")
    assert blob.get_blob_properties().etag == seen, "a staged block changes no version"
    blob.upload_blob(b"another writer", overwrite=True)
    blob.stage_block("0001", b"blocks")
    how = {"etag": seen, "match_condition": MatchConditions.IfNotModified}
    refused(lambda: blob.commit_block_list([BlobBlock("0001")], **how), 412, "ConditionNotMet")
    assert blob.download_blob().readall() == b"another writer"


def test_missing_blobs_and_containers(blobs, container):
    absent = container.get_blob_client("absent")
    nowhere = blobs.get_container_client(container.container_name + "-none")
    assert not absent.exists() and not nowhere.exists()
    for call in (absent.download_blob, absent.get_blob_properties, absent.delete_blob, absent.set_http_headers):
        refused(call, 404, "BlobNotFound")
    refused(lambda: nowhere.upload_blob("x", b""), 404, "ContainerNotFound")
    refused(nowhere.delete_container, 404, "ContainerNotFound")
    refused(lambda: list(nowhere.list_blobs()), 404, "ContainerNotFound")


def test_a_container_made_again_is_empty(container):
    container.upload_blob("old", b"old")
    container.delete_container()
    # In the real service, it takes a while until the name is free.
    again(lambda: outcome(container.create_container)[0] == "ok" or None)
    assert list(container.list_blobs()) == []
    refused(container.get_blob_client("old").get_blob_properties, 404, "BlobNotFound")
    container.upload_blob("old", b"new")
    assert container.download_blob("old").readall() == b"new"


def test_containers(blobs, container):
    refused(container.create_container, 409, "ContainerAlreadyExists")
    assert container.exists()
    before = container.get_container_properties()
    container.set_container_metadata({"colour": "red"})
    after = container.get_container_properties()
    assert (before.metadata, after.metadata) == ({}, {"colour": "red"}) and before.etag != after.etag
    assert after.name in [item.name for item in blobs.list_containers(name_starts_with=after.name)]
    container.upload_blob("inside", b"x")
    container.delete_container()
    assert not container.exists()
    refused(container.get_blob_client("inside").get_blob_properties, 404)


def test_a_copy_and_a_deletion_by_batch(container):
    source, target = container.get_blob_client("source"), container.get_blob_client("target")
    source.upload_blob(b"hello", metadata={"a": "1"})
    assert target.start_copy_from_url(source.url)["copy_status"] == "success"
    assert target.download_blob().readall() == b"hello"
    assert target.get_blob_properties().metadata == {"a": "1"}
    answers = container.delete_blobs("source", "target", "absent", raise_on_any_failure=False)
    assert [answer.status_code for answer in answers] == [202, 202, 404]


def test_a_tier_is_kept(container):
    blob = container.upload_blob("cold", b"x", standard_blob_tier=StandardBlobTier.COLD)
    properties = blob.get_blob_properties()
    assert (properties.blob_tier, bool(properties.blob_tier_inferred)) == ("Cold", False)
    assert [entry.blob_tier for entry in container.list_blobs()] == ["Cold"]


def test_a_new_tier_is_no_new_version(container, blob):
    before = blob.get_blob_properties()
    assert (before.blob_tier, before.blob_tier_inferred) == ("Hot", True)
    blob.set_standard_blob_tier(StandardBlobTier.COOL)
    container.get_blob_client("other").upload_blob(b"x")
    container.set_standard_blob_tier_blobs(StandardBlobTier.ARCHIVE, "other")
    assert [entry.blob_tier for entry in container.list_blobs()] == ["Cool", "Archive"]
    assert blob.get_blob_properties().etag == before.etag
