"""Data programs with five kinds of clients: the SDK for C++ (pyarrow), asyncio (adlfs), object_store for Rust (obstore, delta-rs), and
the SDK for Go (azcopy). Each does its usual work, and obstore and delta-rs race."""

import datetime
import os
import subprocess
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import adlfs
import deltalake
import obstore
import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as parquet
import pytest
from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas
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


class AzCopy:
    """azcopy from npm, with a signature for the account."""

    def __init__(self, folder):
        packages = Path(__file__).parent.parent / "javascript/node_modules"
        self.program = packages / "@azure-tools/azcopy-linux/dist/bin/azcopy_linux_amd64"
        self.program.chmod(0o755)
        self.signature = generate_account_sas(
            account_name=ACCOUNT,
            account_key=KEY,
            resource_types=ResourceTypes(container=True, object=True),
            permission=AccountSasPermissions(read=True, write=True, delete=True, list=True, create=True),
            expiry=datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1),
        )
        places = ("AZCOPY_LOG_LOCATION", "AZCOPY_JOB_PLAN_LOCATION")
        self.environment = dict(os.environ, AZCOPY_DISABLE_SYSLOG="true", HOME=str(folder)) | {
            place: str(folder / place) for place in places
        }

    def url(self, path):
        return f"{ENDPOINT}/{path}?{self.signature}"

    def run(self, *arguments):
        command = [self.program, *arguments, "--skip-version-check", "--output-level=essential"]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_azcopy_copies_syncs_and_removes(container, tmp_path):
    azcopy = AzCopy(tmp_path / "azcopy")
    source, back = tmp_path / "source", tmp_path / "back"
    (source / "folder").mkdir(parents=True)
    (source / "large").write_bytes(LARGE)
    (source / "folder/ü b").write_bytes(b"small")
    (source / "empty").write_bytes(b"")

    azcopy.run("copy", f"{source}/*", azcopy.url(container), "--recursive", "--from-to=LocalBlob", "--put-md5")
    (source / "empty").write_bytes(b"no longer")
    (source / "folder/more").write_bytes(b"more")
    azcopy.run("sync", str(source), azcopy.url(container), "--recursive", "--from-to=LocalBlob")
    other = f"{container}-2"
    adlfs.AzureBlobFileSystem(connection_string=os.environ["IFMATCH_SDK_BLOB"]).mkdir(other)
    azcopy.run("copy", azcopy.url(f"{container}/*"), azcopy.url(other), "--recursive", "--from-to=BlobBlob")
    azcopy.run("copy", azcopy.url(f"{other}/*"), str(back), "--recursive", "--from-to=BlobLocal", "--check-md5=FailIfDifferent")
    assert files_of(back) == files_of(source)

    azcopy.run("copy", str(source / "empty"), azcopy.url(f"{other}/large"), "--overwrite=false", "--from-to=LocalBlob")
    azcopy.run("remove", azcopy.url(f"{other}/folder"), "--recursive", "--from-to=BlobTrash")
    files = adlfs.AzureBlobFileSystem(connection_string=os.environ["IFMATCH_SDK_BLOB"])
    assert sorted(files.find(other)) == [f"{other}/{name}" for name in ("empty", "large")]
    assert files.cat(f"{other}/large") == LARGE, "a copy that must not overwrite did"
