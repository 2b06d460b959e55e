"""Data programs with four kinds of clients: the SDK for C++ (pyarrow), asyncio (adlfs), and object_store for Rust (obstore, delta-rs).
Each does its usual work, and obstore and delta-rs race."""

import os
import uuid
from concurrent.futures import ThreadPoolExecutor

import adlfs
import deltalake
import obstore
import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as parquet
import pytest
from obstore.store import AzureStore
from pyarrow.fs import AzureFileSystem, FileSelector, FileType

CONNECTION = dict(part.split("=", 1) for part in os.environ["IFMATCH_SDK_BLOB"].rstrip(";").split(";"))
ACCOUNT, KEY, ENDPOINT = (CONNECTION[name] for name in ("AccountName", "AccountKey", "BlobEndpoint"))
LARGE = os.urandom(11 * 1024 * 1024 + 1)


@pytest.fixture
def container():
    name = f"programs-{uuid.uuid4()}"
    adlfs.AzureBlobFileSystem(connection_string=os.environ["IFMATCH_SDK_BLOB"]).mkdir(name)
    return name


@pytest.fixture
def objects(container):
    return AzureStore(
        container, account_name=ACCOUNT, account_key=KEY, endpoint=ENDPOINT, client_options={"allow_http": True}
    )


def arrow():
    authority = ENDPOINT.split("/")[2]
    return AzureFileSystem(account_name=ACCOUNT, account_key=KEY, blob_storage_authority=authority, blob_storage_scheme="http",
                           dfs_storage_authority=authority, dfs_storage_scheme="http")


def test_pyarrow_copies_moves_and_deletes_files(container):
    files = arrow()
    for name, data in [("small", b"small"), ("large", LARGE)]:
        with files.open_output_stream(f"{container}/{name}", metadata={"Content-Type": "text/plain"}) as stream:
            stream.write(data)
        files.copy_file(f"{container}/{name}", f"{container}/{name}-copy")
        with files.open_input_file(f"{container}/{name}-copy") as stream:
            assert stream.read() == data
    listed = files.get_file_info(FileSelector(container, recursive=True))
    assert sorted(entry.base_name for entry in listed) == ["large", "large-copy", "small", "small-copy"]
    files.delete_file(f"{container}/small")
    assert files.get_file_info(f"{container}/small").type == FileType.NotFound


def test_pyarrow_writes_and_reads_a_dataset(container):
    table = pa.table({"year": [2025, 2025, 2026], "value": [1, 2, 3]})
    # Without folders, whose names end in a slash: object stores do not have such names.
    options = {"format": "parquet", "partitioning": ["year"], "filesystem": arrow(), "create_dir": False}
    dataset.write_dataset(table, f"{container}/set", **options)
    read = dataset.dataset(f"{container}/set", partitioning=["year"], filesystem=arrow()).to_table()
    assert sorted(read["value"].to_pylist()) == [1, 2, 3]


def test_fsspec_writes_appends_and_lists(container):
    files = adlfs.AzureBlobFileSystem(connection_string=os.environ["IFMATCH_SDK_BLOB"])
    files.pipe(f"{container}/a b/ü.bin", LARGE)
    assert files.cat(f"{container}/a b/ü.bin") == LARGE
    files.copy(f"{container}/a b/ü.bin", f"{container}/copy")
    for part in (b"one", b"two"):
        with files.open(f"{container}/log", "ab") as log:
            log.write(part)
    assert files.cat(f"{container}/log") == b"onetwo"
    assert sorted(files.find(container)) == [f"{container}/{name}" for name in ("a b/ü.bin", "copy", "log")]
    parquet.write_table(pa.table({"a": [1]}), f"{container}/t.parquet", filesystem=files)
    assert parquet.read_table(f"{container}/t.parquet", filesystem=files)["a"].to_pylist() == [1]
    files.rm(container, recursive=True)
    assert not files.exists(container)


def test_obstore_writes_copies_renames_and_deletes(objects):
    obstore.put(objects, "large", LARGE)
    obstore.copy(objects, "large", "copy")
    obstore.rename(objects, "copy", "a/renamed")
    assert obstore.get(objects, "a/renamed").bytes() == LARGE
    assert bytes(obstore.get_range(objects, "a/renamed", start=7, length=9)) == LARGE[7:16]
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        obstore.copy(objects, "large", "a/renamed", overwrite=False)
    obstore.delete(objects, ["large", "a/renamed"])
    assert [entry["path"] for page in obstore.list(objects) for entry in page] == []


def test_obstore_creations_and_updates_have_one_winner(objects):
    def creation(number):
        try:
            return obstore.put(objects, "one", str(number).encode(), mode="create") and number
        except obstore.exceptions.AlreadyExistsError:
            return None

    def update(number):
        try:
            return obstore.put(objects, "one", str(number).encode(), mode={"e_tag": first["e_tag"]}) and number
        except obstore.exceptions.PreconditionError:
            return None

    with ThreadPoolExecutor(8) as threads:
        for race in (creation, update):
            winners = [number for number in threads.map(race, range(1, 25)) if number]
            assert len(winners) == 1
            assert obstore.get(objects, "one").bytes() == str(winners[0]).encode()
            first = obstore.head(objects, "one")


def test_delta_keeps_every_concurrent_append(container):
    uri, options = f"az://{container}/table", {
        "azure_storage_account_name": ACCOUNT, "azure_storage_account_key": KEY,
        "azure_storage_endpoint": ENDPOINT, "azure_allow_http": "true",
    }

    def append(number):
        deltalake.write_deltalake(uri, pa.table({"number": [number]}), mode="append", storage_options=options)

    append(0)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(append, range(1, 13)))
    table = deltalake.DeltaTable(uri, storage_options=options)
    assert sorted(table.to_pyarrow_table()["number"].to_pylist()) == list(range(13))
    assert table.version() == 12
    table.delete("number >= 6")
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert sorted(deltalake.DeltaTable(uri, storage_options=options).to_pyarrow_table()["number"].to_pylist()) == list(range(6))
