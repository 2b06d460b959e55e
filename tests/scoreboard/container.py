"""Creates a container in Azurite, and prints its URL with a shared access signature."""

import base64
import hashlib
import hmac
import sys
import urllib.parse
import urllib.request

endpoint, account, key, container = sys.argv[1:]
fields = {"sv": "2021-12-02", "ss": "b", "srt": "sco", "sp": "rwdlac", "se": "2099-01-01T00:00:00Z"}
# https://learn.microsoft.com/en-us/rest/api/storageservices/create-account-sas
order = [account, fields["sp"], fields["ss"], fields["srt"], "", fields["se"], "", "", fields["sv"], "", ""]
signature = hmac.new(base64.b64decode(key), "\n".join(order).encode(), hashlib.sha256).digest()
fields["sig"] = base64.b64encode(signature).decode()
url = f"{endpoint}/{container}?{urllib.parse.urlencode(fields)}"
urllib.request.urlopen(urllib.request.Request(url + "&restype=container", method="PUT")).close()
print(url)
