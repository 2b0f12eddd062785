"""The peer of linkage.py: openmined-psi on the same ids, run by a Python that has it (``pip install openmined-psi``) and nothing of this project.

A client and a server; the client alone learns the intersection, and it is the only one that does work on what it gets back.

    /path/to/python benchmarks/openmined_psi.py 5000
"""

import json
import resource
import sys
import time

import private_set_intersection.python as psi


def main() -> None:
    n = int(sys.argv[1])
    own, other = ([f"person {i}" for i in [*range(n // 2), *range(k * n, k * n + n - n // 2)]] for k in (1, 2))
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    client, server = (
        psi.client.CreateWithNewKey(reveal_intersection=True),
        psi.server.CreateWithNewKey(reveal_intersection=True),
    )
    marks = [time.process_time()]
    setup = server.CreateSetupMessage(1e-9, n, other, psi.DataStructure.RAW)
    marks.append(time.process_time())
    request = client.CreateRequest(own)
    marks.append(time.process_time())
    response = server.ProcessRequest(request)
    marks.append(time.process_time())
    assert sorted(client.GetIntersection(setup, response)) == list(range(n // 2))
    marks.append(time.process_time())
    serving, asking = marks[1] - marks[0] + marks[3] - marks[2], marks[2] - marks[1] + marks[4] - marks[3]
    told = {
        "server us per id": serving / n * 1e6,
        "client us per id": asking / n * 1e6,
        "bytes per id": sum(len(m.SerializeToString()) for m in (setup, request, response)) / n,
        "MB of both": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1024,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
