"""Patterns built on leases: leader election, a lock, a work queue, an update of several tables."""

import time

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import BlobLeaseClient
from support import PATIENCE, again, guid, outcome, race, refused


def try_acquire(client, duration=-1):
    """Returns the lease, or None if another client holds it."""
    lease = BlobLeaseClient(client, guid())
    try:
        lease.acquire(duration)
    except HttpResponseError as error:
        assert (error.status_code, error.error_code) == (409, "LeaseAlreadyPresent")
        return None
    return lease


def test_of_six_racers_one_leads(blob):
    for term in range(5):
        leases = race(6, lambda _: try_acquire(blob))
        leaders = [number for number, lease in enumerate(leases) if lease]
        assert len(leaders) == 1, f"term {term}: {leaders}"
        leader = leases[leaders[0]]
        refused(lambda: blob.upload_blob(b"a follower", overwrite=True), 412, "LeaseIdMissing")
        blob.upload_blob(f"term {term}", overwrite=True, lease=leader)
        leader.renew()
        leader.release()


@pytest.mark.waits
def test_a_silent_leader_is_replaced_by_one_follower(blob):
    old = try_acquire(blob, 30)
    blob.upload_blob(b"old", overwrite=True, lease=old)

    def follow(number):
        """Tries to become the leader until there is one. Returns the lease, or "lost" if another client won."""

        def poll():
            try:
                return try_acquire(blob) or ("lost" if blob.download_blob().readall() != b"old" else None)
            except HttpResponseError as error:
                raise AssertionError(f"follower {number}") from error

        won = again(poll)
        if won != "lost":
            blob.upload_blob(f"follower {number}", overwrite=True, lease=won)
        return won

    answers = race(5, follow)
    leaders = [number for number, answer in enumerate(answers) if answer != "lost"]
    assert len(leaders) == 1
    refused(lambda: blob.upload_blob(b"old again", overwrite=True, lease=old), 412, "LeaseIdMismatchWithBlobOperation")
    assert blob.download_blob().readall() == f"follower {leaders[0]}".encode()


def test_a_lock_keeps_four_threads_apart(blob, container):
    """The protected writes are unconditional, so only the lock prevents lost updates."""
    shared = container.get_blob_client("shared")
    shared.upload_blob(b"0")

    def work(_):
        for _ in range(5):
            lease = again(lambda: try_acquire(blob))
            shared.upload_blob(str(int(shared.download_blob().readall()) + 1), overwrite=True)
            lease.release()

    race(4, work)
    assert shared.download_blob().readall() == b"20"


def take(container, duration):
    """Returns a free job and its lease, or None."""
    for job in container.list_blobs(name_starts_with="job"):
        client = container.get_blob_client(job.name)
        lease = BlobLeaseClient(client, guid())
        if job.lease.state != "leased" and outcome(lambda: lease.acquire(duration))[0] == "ok":
            return client, lease
    return None


def test_three_workers_do_each_job_once(container):
    jobs = [f"job {number}" for number in range(12)]
    for job in jobs:
        container.upload_blob(job, job)

    def work(number):
        done = []
        deadline = time.monotonic() + PATIENCE
        while any(True for _ in container.list_blobs(name_starts_with="job")):
            assert time.monotonic() < deadline, "waited in vain for the jobs to be done"
            if not (taken := take(container, -1)):
                time.sleep(0.02)
                continue
            job, lease = taken
            # Fails if a second worker has done the job.
            container.upload_blob(f"result of {job.blob_name}", job.download_blob(lease=lease).readall())
            job.delete_blob(lease=lease)
            done.append(job.blob_name)
        return done

    done = race(3, work)
    assert sorted(sum(done, [])) == sorted(jobs)
    assert len(list(container.list_blobs(name_starts_with="result"))) == len(jobs)


@pytest.mark.waits
def test_a_late_worker_is_fenced(container):
    for name in ("job", "job that is done"):
        container.upload_blob(name, "to do")
    late = [take(container, 30), take(container, 30)]
    assert take(container, 30) is None, "both jobs are taken"
    # The late worker sleeps too long, and another takes over.
    (first, first_lease), (second, second_lease) = [again(lambda: take(container, -1)) for _ in late]
    first.upload_blob(b"by the second worker", overwrite=True, lease=first_lease)
    second.delete_blob(lease=second_lease)
    stale = {client.blob_name: lease for client, lease in late}
    for write in (
        lambda: first.upload_blob(b"by the late worker", overwrite=True, lease=stale[first.blob_name]),
        lambda: first.delete_blob(lease=stale[first.blob_name]),
    ):
        refused(write, 412, "LeaseIdMismatchWithBlobOperation")
    refused(stale[first.blob_name].renew, 409, "LeaseIdMismatchWithLeaseOperation")
    refused(stale[second.blob_name].renew, 404, "BlobNotFound")
    assert first.download_blob().readall() == b"by the second worker"


def test_a_lease_protects_an_update_of_two_tables(blob, tables, table):
    """Moves money between two tables without a common transaction, and without conditions."""
    other = tables.create_table(table.table_name + "other")
    accounts = [table, other]
    for account in accounts:
        account.create_entity({"PartitionKey": "p", "RowKey": "r", "balance": 100})

    def move(number):
        for step in range(4):
            lease = again(lambda: try_acquire(blob))
            source, target = accounts if (number + step) % 2 else reversed(accounts)
            for account, change in ((source, -number - 1), (target, number + 1)):
                balance = account.get_entity("p", "r")["balance"]
                account.update_entity({"PartitionKey": "p", "RowKey": "r", "balance": balance + change})
            lease.release()

    race(4, move)
    assert sum(account.get_entity("p", "r")["balance"] for account in accounts) == 200
