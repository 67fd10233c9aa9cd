"""Ask each address on the command line until all have said that they are ready, for half a minute at most."""

import sys
import time
import urllib.error
import urllib.request

left = dict.fromkeys(sys.argv[1:], "")
deadline = time.monotonic() + 30
while left and time.monotonic() < deadline:
    for url in list(left):
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                print(f"ok  {url} {answer.read().decode().strip()}")
            del left[url]
        except urllib.error.HTTPError as error:
            left[url] = f"{error.code}: {error.read().decode().strip()}"
        except OSError as error:
            left[url] = str(error)
    if left:
        time.sleep(0.5)
for url, why in left.items():
    print(f"no  {url} {why}")
sys.exit(1 if left else 0)
