"""S3 clients: boto3 beside the Azure SDK, on the same blobs. Collected only for a server with an endpoint for S3."""

import io
import pathlib
import urllib.request

import botocore.session
import pytest
from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError
from botocore.exceptions import ClientError
from support import race

MIB = 1024 * 1024


def outcome(call):
    """Returns `ok`, or the code of S3's error."""
    try:
        call()
    except ClientError as error:
        return error.response["Error"]["Code"]
    return "ok"


@pytest.fixture
def bucket(container):
    return container.container_name


def test_conditions_of_boto3(s3, bucket):
    def put(**conditions):
        return s3.put_object(Bucket=bucket, Key="a", Body=b"one", **conditions)

    first = put(IfNoneMatch="*")
    assert outcome(lambda: put(IfNoneMatch="*")) == "PreconditionFailed"
    second = put(IfMatch=first["ETag"])
    assert outcome(lambda: put(IfMatch=first["ETag"])) == "PreconditionFailed"
    assert outcome(lambda: s3.delete_object(Bucket=bucket, Key="a", IfMatch=first["ETag"])) == "PreconditionFailed"
    assert outcome(lambda: s3.get_object(Bucket=bucket, Key="a", IfNoneMatch=second["ETag"])) == "304"
    s3.delete_object(Bucket=bucket, Key="a", IfMatch=second["ETag"])
    assert outcome(lambda: put(IfMatch=second["ETag"])) == "NoSuchKey"


def test_boto3_and_the_azure_sdk_share_tags_and_leases(s3, bucket, container):
    blob = container.get_blob_client("shared")
    tag = s3.put_object(Bucket=bucket, Key="shared", Body=b"one", Metadata={"owner": "me"})["ETag"]
    properties = blob.get_blob_properties()
    assert properties.etag == tag and properties.metadata == {"owner": "me"}
    lease = blob.acquire_lease()
    assert outcome(lambda: s3.put_object(Bucket=bucket, Key="shared", Body=b"two")) == "AccessDenied"
    assert outcome(lambda: s3.delete_object(Bucket=bucket, Key="shared")) == "AccessDenied"
    lease.release()
    s3.put_object(Bucket=bucket, Key="shared", Body=b"two", IfMatch=tag)
    with pytest.raises(HttpResponseError) as failed:
        blob.upload_blob(b"three", overwrite=True, etag=tag, match_condition=MatchConditions.IfNotModified)
    assert failed.value.status_code == 412


def test_one_of_sixteen_threads_creates_an_object(s3, bucket):
    for attempt in range(10):
        key = f"race-{attempt}"
        create = lambda number: outcome(lambda: s3.put_object(Bucket=bucket, Key=key, Body=b"x", IfNoneMatch="*"))
        outcomes = race(16, create)
        assert outcomes.count("ok") == 1, outcomes
        assert set(outcomes) <= {"ok", "PreconditionFailed", "ConditionalRequestConflict"}


def test_large_files_are_sent_in_parts(s3, bucket):
    content = bytes(range(256)) * (20 * MIB // 256) + b"end"
    s3.upload_fileobj(io.BytesIO(content), bucket, "large", ExtraArgs={"ContentType": "text/x"})
    back = io.BytesIO()
    s3.download_fileobj(bucket, "large", back)
    assert back.getvalue() == content
    assert s3.head_object(Bucket=bucket, Key="large")["ContentType"] == "text/x"
    s3.copy({"Bucket": bucket, "Key": "large"}, bucket, "copy")
    assert s3.head_object(Bucket=bucket, Key="copy")["ContentLength"] == len(content)
    assert not s3.list_multipart_uploads(Bucket=bucket).get("Uploads")


# The others need awscrt.
@pytest.mark.parametrize(
    "algorithm, kind",
    [("CRC32", "COMPOSITE"), ("SHA1", "COMPOSITE"), ("SHA256", "COMPOSITE"), ("CRC32", "FULL_OBJECT")],
)
def test_checksums_of_uploads_in_parts(s3, bucket, algorithm, kind):
    name = f"Checksum{algorithm}"
    where = {"Bucket": bucket, "Key": "sum"}
    upload = s3.create_multipart_upload(**where, ChecksumAlgorithm=algorithm, ChecksumType=kind)
    assert (upload["ChecksumAlgorithm"], upload["ChecksumType"]) == (algorithm, kind)
    where["UploadId"] = upload["UploadId"]
    parts = []
    for number, content in [(1, b"a" * 5 * MIB), (2, b"end")]:
        part = s3.upload_part(**where, PartNumber=number, Body=content, ChecksumAlgorithm=algorithm)
        parts.append({"PartNumber": number, "ETag": part["ETag"], name: part[name]})
    listed = s3.list_parts(**where)
    assert [part[name] for part in listed["Parts"]] == [part[name] for part in parts]
    done = s3.complete_multipart_upload(**where, MultipartUpload={"Parts": parts}, ChecksumType=kind)
    assert done[name].endswith("-2") == (kind == "COMPOSITE") and done["ChecksumType"] == kind
    del where["UploadId"]
    for read in (s3.head_object, s3.get_object):
        answer = read(**where, ChecksumMode="ENABLED")
        assert (answer[name], answer["ChecksumType"]) == (done[name], kind)
        if read is s3.get_object:
            # boto3 verifies the checksum of all bytes.
            assert len(answer["Body"].read()) == 5 * MIB + 3
    attributes = s3.get_object_attributes(**where, ObjectAttributes=["ETag", "Checksum", "ObjectParts", "ObjectSize"])
    assert attributes["Checksum"] == {name: done[name], "ChecksumType": kind}
    assert (attributes["ETag"].strip('"'), attributes["ObjectSize"]) == (done["ETag"].strip('"'), 5 * MIB + 3)
    assert attributes.get("ObjectParts", {}).get("TotalPartsCount") == (2 if kind == "COMPOSITE" else None)


def test_pages_of_listings(s3, bucket):
    keys = [f"{folder}/{number} é&" for folder in "abc" for number in range(5)]
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=b"")
    for operation in ("list_objects", "list_objects_v2"):
        pages = s3.get_paginator(operation).paginate(Bucket=bucket, PaginationConfig={"PageSize": 4})
        assert [entry["Key"] for page in pages for entry in page["Contents"]] == keys
        pages = s3.get_paginator(operation).paginate(Bucket=bucket, Delimiter="/", PaginationConfig={"PageSize": 1})
        assert [folder["Prefix"] for page in pages for folder in page["CommonPrefixes"]] == ["a/", "b/", "c/"]
    deleted = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True})
    assert not deleted.get("Errors")
    assert s3.list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_versions_of_a_bucket_that_was_never_versioned(s3, bucket):
    """A clean-up lists the versions and deletes them, as the tests of ceph/s3-tests and Terraform's `force_destroy` do."""
    assert "Status" not in s3.get_bucket_versioning(Bucket=bucket)
    for key in ("a", "b/1", "b/2"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"one")
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=bucket, PaginationConfig={"PageSize": 2})
    versions = [version for page in pages for version in page["Versions"]]
    assert [(one["Key"], one["VersionId"], one["IsLatest"]) for one in versions] == [
        ("a", "null", True),
        ("b/1", "null", True),
        ("b/2", "null", True),
    ]
    get = lambda version: s3.get_object(Bucket=bucket, Key="a", VersionId=version)
    assert get("null")["Body"].read() == b"one" and outcome(lambda: get("other")) == "NoSuchVersion"
    source = {"Bucket": bucket, "Key": "a", "VersionId": "null"}
    s3.copy_object(Bucket=bucket, Key="c", CopySource=source)
    objects = [{"Key": key, "VersionId": "null"} for key in ("a", "b/1", "b/2", "c")]
    deleted = s3.delete_objects(Bucket=bucket, Delete={"Objects": objects})
    assert [entry["VersionId"] for entry in deleted["Deleted"]] == ["null"] * 4
    assert not s3.list_object_versions(Bucket=bucket).get("Versions")


def test_settings_that_a_bucket_does_not_have(s3, bucket):
    where = {"Bucket": bucket}
    for read, code in [
        (s3.get_bucket_policy, "NoSuchBucketPolicy"),
        (s3.get_bucket_policy_status, "NoSuchBucketPolicy"),
        (s3.get_bucket_tagging, "NoSuchTagSet"),
        (s3.get_bucket_encryption, "ServerSideEncryptionConfigurationNotFoundError"),
        (s3.get_bucket_lifecycle_configuration, "NoSuchLifecycleConfiguration"),
        (s3.get_bucket_cors, "NoSuchCORSConfiguration"),
        (s3.get_public_access_block, "NoSuchPublicAccessBlockConfiguration"),
        (s3.get_bucket_ownership_controls, "OwnershipControlsNotFoundError"),
        (s3.get_bucket_website, "NoSuchWebsiteConfiguration"),
        (s3.get_bucket_replication, "ReplicationConfigurationNotFoundError"),
        (s3.get_object_lock_configuration, "ObjectLockConfigurationNotFoundError"),
    ]:
        assert outcome(lambda: read(**where)) == code
    assert "LoggingEnabled" not in s3.get_bucket_logging(**where)
    assert "TopicConfigurations" not in s3.get_bucket_notification_configuration(**where)
    assert "Status" not in s3.get_bucket_accelerate_configuration(**where)
    assert s3.get_bucket_request_payment(**where)["Payer"] == "BucketOwner"
    s3.put_object(**where, Key="a", Body=b"one")
    for acl in (s3.get_bucket_acl(**where), s3.get_object_acl(**where, Key="a")):
        [grant] = acl["Grants"]
        assert (grant["Permission"], grant["Grantee"]["ID"]) == ("FULL_CONTROL", acl["Owner"]["ID"])
        assert grant["Grantee"]["Type"] == "CanonicalUser"
    assert outcome(lambda: s3.get_object_retention(**where, Key="a")) == "InvalidRequest"
    policy = '{"Version": "2012-10-17", "Statement": []}'
    assert outcome(lambda: s3.put_bucket_policy(**where, Policy=policy)) == "NotImplemented"


def tag_set(**tags):
    return {"TagSet": [{"Key": name, "Value": value} for name, value in tags.items()]}


def test_s3_and_the_azure_sdk_see_the_same_tags(s3, bucket, container):
    where, blob = {"Bucket": bucket, "Key": "a"}, container.get_blob_client("a")
    tag = s3.put_object(**where, Body=b"one", Tagging="state=free&by=you%20%2B%20me")["ETag"]
    assert blob.get_blob_tags() == {"by": "you + me", "state": "free"}
    date = s3.head_object(**where)["LastModified"]
    s3.put_object_tagging(**where, Tagging=tag_set(state="taken", owner="me"))
    assert blob.get_blob_tags() == {"owner": "me", "state": "taken"}
    blob.set_blob_tags({"state": "done"})
    assert s3.get_object_tagging(**where)["TagSet"] == tag_set(state="done")["TagSet"]
    read = s3.get_object(**where)
    assert (read["ETag"], read["LastModified"], read["TagCount"]) == (tag, date, 1)
    assert blob.get_blob_properties().tag_count == 1
    assert [listed.tags for listed in container.list_blobs(include=["tags"])] == [{"state": "done"}]
    s3.copy_object(Bucket=bucket, Key="copy", CopySource=where)
    assert s3.get_object_tagging(Bucket=bucket, Key="copy")["TagSet"] == tag_set(state="done")["TagSet"]
    s3.copy_object(Bucket=bucket, Key="copy", CopySource=where, TaggingDirective="REPLACE", Tagging="state=new")
    assert s3.get_object_tagging(Bucket=bucket, Key="copy")["TagSet"] == tag_set(state="new")["TagSet"]
    s3.delete_object_tagging(**where)
    assert blob.get_blob_tags() == {} and "TagCount" not in s3.get_object(**where)
    eleven = tag_set(**{f"name{number}": "x" for number in range(11)})
    assert outcome(lambda: s3.put_object_tagging(**where, Tagging=eleven)) == "InvalidTag"
    container.upload_blob("tagged", b"two", tags={"state": "free"})
    assert s3.get_object_tagging(Bucket=bucket, Key="tagged")["TagSet"] == tag_set(state="free")["TagSet"]


def test_one_of_sixteen_threads_takes_a_blob_by_its_tags(container):
    blob = container.upload_blob("a", b"one", tags={"round": "0"})
    for round in range(10):
        def take(number):
            try:
                blob.set_blob_tags({"round": str(round + 1), "owner": str(number)}, if_tags_match_condition=f"\"round\" = '{round}'")
            except HttpResponseError as error:
                return error.error_code
            return "ok"

        outcomes = race(16, take)
        assert outcomes.count("ok") == 1 and set(outcomes) == {"ok", "ConditionNotMet"}, outcomes
        assert blob.get_blob_tags()["owner"] == str(outcomes.index("ok"))


def test_presigned_urls(s3, bucket):
    s3.put_object(Bucket=bucket, Key="a b", Body=b"one")
    url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "a b"}, ExpiresIn=60)
    with urllib.request.urlopen(url, timeout=60) as response:
        assert response.read() == b"one"


def test_requests_of_terraform(s3, bucket):
    """The requests of Terraform's backend with `use_lockfile`: lock, read, write, unlock."""
    state, lock = {"Bucket": bucket, "Key": "terraform.tfstate"}, {"Bucket": bucket, "Key": "terraform.tfstate.tflock"}
    s3.list_objects_v2(Bucket=bucket, Prefix="env:/", MaxKeys=1000)
    acquire = lambda: s3.put_object(
        **lock, Body=b'{"ID":"1"}', ContentType="application/json", IfNoneMatch="*", ChecksumAlgorithm="SHA256"
    )
    acquire()
    assert outcome(acquire) == "PreconditionFailed"
    assert s3.get_object(**lock)["Body"].read() == b'{"ID":"1"}'
    assert outcome(lambda: s3.get_object(**state)) == "NoSuchKey"
    s3.put_object(**state, Body=b"{}", ContentType="application/json", ChecksumAlgorithm="SHA256")
    assert s3.get_object(**state)["Body"].read() == b"{}"
    s3.delete_object(**lock)
    assert outcome(acquire) == "ok"


def row(name, operation):
    """Describes an operation: method and path, the parameters and the header fields that it needs, and its name."""
    members = operation.input_shape.members if operation.input_shape else {}
    required = operation.input_shape.required_members if operation.input_shape else []

    def needed(location):
        found = [members[member].serialization for member in required]
        return " ".join(sorted(field["name"] for field in found if field.get("location") == location)) or "-"

    http = operation.http
    return f"{http['method']} {http['requestUri']} | {needed('querystring')} | {needed('header')} | {name}"


def test_the_table_has_all_operations_of_botocore():
    """tests/blackbox/s3/requests.rs of ifmatch-gateway sends them all, so one that is new to botocore is never taken for another."""
    # A client changes its model.
    model = botocore.session.get_session().get_service_model("s3")
    rows = [row(name, model.operation_model(name)) for name in sorted(model.operation_names)]
    table = pathlib.Path(__file__).parents[3] / "crates/ifmatch-gateway/tests/data/blackbox" / "s3-operations.txt"
    lines = table.read_text().splitlines()
    kept = [line for line in lines if line and not line.startswith("#")]
    assert kept == rows, "replace the rows of crates/ifmatch-gateway/tests/data/blackbox/s3-operations.txt with these:\n" + "\n".join(rows)
