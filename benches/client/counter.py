"""Adds one to blobs from several threads for a while, with the loop of Azure's samples, and prints the counts.

The loop: download, change, upload under the tag of the download, and from the start again after a 412.
"""

import json
import sys
import threading
import time

from azure.core import MatchConditions
from azure.core.exceptions import ResourceModifiedError
from azure.storage.blob import BlobClient, ContainerClient

ENDPOINT, ACCOUNT, KEY, CONTAINER, WRITERS, KEYS, SECONDS = sys.argv[1:]
CREDENTIAL = {"account_name": ACCOUNT, "account_key": KEY}


class Writer(threading.Thread):
    """A thread with a client of its own, and so a connection of its own."""

    def __init__(self, number, start):
        super().__init__()
        name = str(number % int(KEYS))
        self.blob = BlobClient(ENDPOINT, CONTAINER, name, credential=CREDENTIAL)
        self.start_together = start
        self.in_time = self.all = self.attempts = 0

    def run(self):
        self.blob.get_blob_properties()
        self.start_together.wait()
        end = time.monotonic() + float(SECONDS)
        while time.monotonic() < end:
            self.increment()
            self.all += 1
            self.in_time += time.monotonic() < end

    def increment(self):
        while True:
            self.attempts += 1
            read = self.blob.download_blob()
            text = str(int(read.readall()) + 1)
            try:
                tag = read.properties.etag
                self.blob.upload_blob(text, overwrite=True, etag=tag, match_condition=MatchConditions.IfNotModified)
                return
            except ResourceModifiedError:
                pass


container = ContainerClient(ENDPOINT, CONTAINER, credential=CREDENTIAL)
container.create_container()
for number in range(int(KEYS)):
    container.upload_blob(str(number), "0")
# Measured from here on, without the imports.
barrier = threading.Barrier(int(WRITERS))
writers = [Writer(number, barrier) for number in range(int(WRITERS))]
before = time.process_time()
for writer in writers:
    writer.start()
for writer in writers:
    writer.join()
total = {name: sum(getattr(writer, name) for writer in writers) for name in ("in_time", "all", "attempts")}
total["cpu"] = time.process_time() - before
total["sum"] = sum(int(container.download_blob(str(number)).readall()) for number in range(int(KEYS)))
print(json.dumps(total))
