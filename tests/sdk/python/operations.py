"""The operations named in the tables of rules, on a blob or container client."""

import base64
from datetime import timedelta

from azure.core import MatchConditions
from azure.storage.blob import BlobBlock, BlobLeaseClient, ContentSettings

from support import guid

BLOCK = base64.b64encode(b"0001").decode()


def stage(blob, **kwargs):
    blob.stage_block(BLOCK, b"block", **kwargs)


OPERATIONS = {
    "get": lambda blob, **how: blob.download_blob(**how).readall(),
    "head": lambda blob, **how: blob.get_blob_properties(**how),
    "put": lambda blob, **how: blob.upload_blob(b"second", overwrite=True, **how),
    "create": lambda blob, **how: blob.upload_blob(b"second", overwrite=False, **how),
    "list": lambda blob, **how: blob.commit_block_list([BlobBlock(BLOCK)], **how),
    "metadata": lambda blob, **how: blob.set_blob_metadata({"colour": "red"}, **how),
    "properties": lambda blob, **how: blob.set_http_headers(ContentSettings(content_type="text/plain"), **how),
    "delete": lambda blob, **how: blob.delete_blob(**how),
    "acquire": lambda blob, **how: BlobLeaseClient(blob, guid()).acquire(15, **how),
    "container-delete": lambda container, **how: container.delete_container(**how),
    "container-acquire": lambda container, **how: BlobLeaseClient(container, guid()).acquire(15, **how),
}

TAGS = {"current": None, "stale": '"0x0000000000000000"', "*": "*"}
DATES = {"before": timedelta(hours=-1), "same": timedelta(0), "after": timedelta(hours=1)}


def parsed(text):
    return [field.split("=") for field in text.split(" ")]


def expressible(operation, text):
    """Returns whether the client can send conditions such as `if-match=current if-unmodified-since=after`: no tags to containers."""
    names, values = zip(*parsed(text))
    known = DATES.keys() if operation.startswith("container-") else TAGS.keys() | DATES.keys()
    return len(set(names)) == len(names) and set(values) <= known


def conditions(text, tag, date):
    """Returns the arguments for conditions."""
    how = {name.replace("-", "_"): date + DATES[value] for name, value in parsed(text) if value in DATES}
    tags = {name: TAGS[value] or tag for name, value in parsed(text) if value in TAGS}
    if len(tags) == 2:
        # The client has a single argument for both; other combinations are sent as headers.
        how["headers"] = tags
    elif tags:
        how |= match(*tags.popitem())
    return how


def match(name, value):
    if value == "*":
        condition = MatchConditions.IfPresent if name == "if-match" else MatchConditions.IfMissing
        return {"match_condition": condition}
    condition = MatchConditions.IfNotModified if name == "if-match" else MatchConditions.IfModified
    return {"etag": value, "match_condition": condition}
