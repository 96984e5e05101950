"""Start `assay view` on the given files and print what its addresses answer."""

import subprocess
import sys
import urllib.error
import urllib.request

split = sys.argv.index("--")
command = ["assay", "view", "--port", "0", *sys.argv[1:split]]
server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
url = server.stdout.readline().strip()
base = url.rstrip("/")
origin = "/".join(base.split("/")[:3])


def show(address, data=None):
    request = urllib.request.Request(base + address, data)
    if data:
        request.add_header("Content-Type", "application/json")
        request.add_header("Origin", origin)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            body = answer.read().decode()
            print(address, answer.status, body, flush=True)
    except urllib.error.HTTPError as error:
        print(address, error.code, flush=True)


try:
    for address in sys.argv[split + 1 :]:
        path, _, body = address.partition(" ")
        show(path, body.encode() or None)
finally:
    server.terminate()
    print("exit", server.wait(20))
