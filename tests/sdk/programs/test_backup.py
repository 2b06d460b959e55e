"""Backup programs from Debian, restic and rclone. Restored files are the originals, byte by byte."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

CONNECTION = dict(part.split("=", 1) for part in os.environ["IFMATCH_SDK_BLOB"].rstrip(";").split(";"))
ACCOUNT, KEY, ENDPOINT = (CONNECTION[name] for name in ("AccountName", "AccountKey", "BlobEndpoint"))
MIB = 1 << 20
# Lengths on both sides of the sizes at which the clients and the service split files.
LENGTHS = {
    "large.bin": 24 * MIB + 12_345,
    "blocks/one.bin": 4 * MIB,
    "blocks/one and a byte.bin": 4 * MIB + 1,
    "blocks/two.bin": 8 * MIB,
    "blocks/two and a byte.bin": 8 * MIB + 1,
    "empty": 0,
    "one byte": 1,
    "inline.bin": 4096,
}
# Names that a client may encode in several ways.
NAMES = [
    "with spaces  in it.txt",
    " leading and trailing ",
    "ünïcödé/日本語/🦀 crab.txt",
    "100% of a+b=c&d?e#f;g",
    "it's \"quoted\" [brackets] {braces} (more)",
    ".hidden/.file",
    "deep/er/and/deep/er/still/file",
    "~tilde!$@,:|<>*",
    "UPPER/lower",
    "UPPER/LOWER",
    "UPPER AND lower/with blank.txt",
]
SMALL = [(f"small/{number % 7}/{number:03}.txt", number * 13) for number in range(200)]


def write(folder, name, data):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


@pytest.fixture
def files(tmp_path):
    """Large and empty files, many small ones, and names of all kinds."""
    folder, source = tmp_path / "files", random.Random(1)
    for name, length in [*LENGTHS.items(), *SMALL]:
        write(folder, name, source.randbytes(length))
    for name in NAMES:
        write(folder, name, name.encode())
    write(folder, "zeros.bin", bytes(10 * MIB))
    return folder


def change(files):
    """Deletes, replaces, appends to and adds files."""
    source = random.Random(2)
    for name, _ in SMALL[::3]:
        (files / name).unlink()
    (files / "blocks/two.bin").unlink()
    write(files, NAMES[0], b"replaced")
    write(files, "large.bin", source.randbytes(9 * MIB + 1))
    write(files, "inline.bin", (files / "inline.bin").read_bytes() + source.randbytes(5000))
    write(files, "new/file with ünïcödé.txt", b"new")


def read(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_restored(files, restored):
    expected, found = read(files), read(restored)
    assert expected.keys() == found.keys()
    # Not the bytes, which pytest would print.
    assert [name for name in expected if expected[name] != found[name]] == []


def runner(program, folder, **environment):
    """Returns a function that runs the program, and returns its output."""

    def run(*arguments):
        done = subprocess.run(
            [program, *arguments], cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, f"{program} {' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run


def restic_at(address, folder):
    """Copies the installed restic, with another address in place of the storage emulator's, which cannot be configured."""
    installed, emulator = Path(shutil.which("restic")).read_bytes(), b"127.0.0.1:10000"
    assert emulator in installed, "this restic does not know the storage emulator: install 0.14"
    assert len(address) == len(emulator), f"{address} needs as many characters as the emulator's address"
    copy = folder / "restic"
    copy.write_bytes(installed.replace(emulator, address.encode()))
    copy.chmod(0o755)
    return copy


def test_restic_restores_what_it_has_backed_up(files, tmp_path):
    program = restic_at(ENDPOINT.split("/")[2], tmp_path)
    restic = runner(
        program, tmp_path, RESTIC_REPOSITORY="azure:restic:/", RESTIC_PASSWORD="secret", AZURE_ACCOUNT_NAME=ACCOUNT,
        AZURE_ACCOUNT_KEY=KEY, RESTIC_CACHE_DIR=str(tmp_path / "cache"),
    )

    def check(name):
        restic("check", "--read-data")
        restic("restore", "latest", "--target", name)
        # Absolute paths are restored below the target.
        check_restored(files, tmp_path / name / files.relative_to("/"))

    restic("init")
    restic("backup", files)
    check("first")
    change(files)
    restic("backup", files)
    restic("forget", "--keep-last", "1", "--prune", "--max-unused", "0")
    check("second")


def test_rclone_copies_syncs_moves_and_restores(files, tmp_path):
    rclone = runner(
        "rclone", tmp_path, RCLONE_CONFIG=str(tmp_path / "rclone.conf"), RCLONE_CONFIG_HERE_TYPE="azureblob",
        RCLONE_CONFIG_HERE_USE_EMULATOR="true", RCLONE_CONFIG_HERE_ENDPOINT=ENDPOINT,
        # A retry must not hide a rejection.
        RCLONE_RETRIES="1",
    )
    there, moved, restored = "here:rclone", "here:rclone-moved", tmp_path / "restored"

    def check_complete():
        # Compares the MD5 reported by the service, then the bytes.
        rclone("check", files, there)
        rclone("check", "--download", files, there)
        sums = [sorted(rclone("md5sum", place).splitlines()) for place in (files, there)]
        assert sums[0] == sums[1], "the service does not report the MD5 of every file"
        assert len(rclone("lsl", there).splitlines()) == len(read(files))

    rclone("copy", files, there)
    check_complete()
    # A folder with a blank in its name, whose listing rclone signs with a blank and sends with a plus.
    assert rclone("lsf", "here:rclone/UPPER AND lower").strip() == "with blank.txt"
    change(files)
    rclone("sync", files, there)
    check_complete()
    rclone("sync", there, restored)
    check_restored(files, restored)
    # A move within the service is a copy by the service, then a deletion.
    rclone("move", there, moved)
    rclone("check", "--download", files, moved)
    rclone("purge", moved)
    rclone("purge", there)
