"""llama.cpp's server with the small model that was installed beside it, on a free port of this machine.

Says its address once it answers, and ends when its input closes.
"""

import pathlib
import socket
import sys
import time
import urllib.request

import xllamacpp

model = next(pathlib.Path(sys.argv[1]).glob("*.gguf"))
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]

params = xllamacpp.CommonParams()
params.model.path = str(model)
# Each time the same answers.
params.n_ctx = 1024
params.sampling.temp = 0
params.n_parallel = 1
params.n_predict = 32
params.use_jinja = True
params.hostnames = ["127.0.0.1"]
params.port = port
params.cpuparams.n_threads = 1
server = xllamacpp.Server(params)

address = f"http://127.0.0.1:{port}"
for _ in range(600):
    try:
        urllib.request.urlopen(f"{address}/health", timeout=5).read()
        break
    except OSError:
        time.sleep(0.1)
print(address, flush=True)
sys.stdin.read()
