"""Raw requests with SharedKey signatures, for requests that the clients never send."""

import base64
import hashlib
import hmac
import http.client
import uuid
import xml.etree.ElementTree as ET
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from urllib.parse import quote, urlsplit

# The signed standard headers, in order.
SIGNED = (
    "content-encoding content-language content-length content-md5 content-type date "
    "if-modified-since if-match if-none-match if-unmodified-since range"
).split()


class Answer:
    """A response with its whole body."""

    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def code(self):
        return self.headers.get("x-ms-error-code")

    def check(self, status, *codes):
        """Checks the status, and the code in the header and in the body."""
        assert self.status == status, f"{self.status} {self.code} instead of {status} {codes}: {self.body[:500]}"
        if status < 400:
            return
        assert not codes or self.code in codes, f"{self.code} instead of {codes}"
        assert self.headers["content-type"].startswith("application/xml"), self.headers["content-type"]
        error = ET.fromstring(self.body.decode("utf-8-sig"))
        assert error.tag == "Error" and error.findtext("Code") == self.code and error.findtext("Message")


class Raw:
    """Sends requests to the resource of an SDK client, with its account and key."""

    def __init__(self, client):
        self.url = urlsplit(client.url)
        self.account = client.credential.account_name
        self.key = client.credential.account_key

    def send(self, method, query=(), headers=(), body="", skew=timedelta(0), sign=None):
        """`skew` shifts the request's date; `sign` derives the authorization from the right one, or None to omit it."""
        query, body = dict(query), body.encode()
        headers = self.signed(method, query, dict(headers), body, skew=skew)
        if sign:
            headers["authorization"] = sign(headers["authorization"])
        return self.exchange(method, query, {name: value for name, value in headers.items() if value is not None}, body)

    def signed(self, method, query, headers, body, skew=timedelta(0), like=None):
        """Returns all headers of the request; `like` supplies the date and authorization of another request."""
        now = format_datetime(datetime.now(timezone.utc) + skew, usegmt=True)
        headers = headers | {
            "x-ms-version": "2025-01-05",
            "x-ms-client-request-id": like["x-ms-client-request-id"] if like else str(uuid.uuid4()),
            "x-ms-date": like["x-ms-date"] if like else now,
            "content-length": str(len(body)),
        }
        return headers | {"authorization": like["authorization"] if like else self.authorization(method, query, headers)}

    def exchange(self, method, query, headers, body):
        target = self.url.path + "?" + "&".join(f"{quote(name)}={quote(value, safe='')}" for name, value in query.items())
        connection = http.client.HTTPConnection(self.url.hostname, self.url.port, timeout=60)
        try:
            connection.putrequest(method, target.rstrip("?"), skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def authorization(self, method, query, headers):
        standard = [headers.get(name, "") for name in SIGNED]
        if headers["content-length"] == "0":
            standard[SIGNED.index("content-length")] = ""
        extension = sorted(f"{name}:{value}" for name, value in headers.items() if name.startswith("x-ms-"))
        resource = f"/{self.account}{self.url.path}"
        parameters = sorted(f"{name.lower()}:{value}" for name, value in query.items())
        text = "\n".join([method, *standard, *extension, resource, *parameters])
        digest = hmac.new(base64.b64decode(self.key), text.encode(), hashlib.sha256).digest()
        return f"SharedKey {self.account}:{base64.b64encode(digest).decode()}"
