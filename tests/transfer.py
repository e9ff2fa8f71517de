"""Sends bytes between hosts; a host that receives prints from whom, and when.

    python -m tests.transfer SIZE SENDERS RECEIVERS

Every sender sends SIZE bytes to every receiver, all at once. Both are numbers of hosts
without a space between them.
"""

import json
import os
import socket
import sys
import threading
import time

from experiments.links.hosts import address

size, (senders, receivers) = int(sys.argv[1]), [map(int, x) for x in sys.argv[2:]]
senders, receivers = list(senders), list(receivers)
own = int(os.environ["OLSGD_PROCESS_ID"])
times, sources = [], []


def send(receiver):
    for _ in range(200):
        try:
            with socket.create_connection((address(receiver), 7000)) as connection:
                return connection.sendall(bytes(size))
        except ConnectionRefusedError:  # it has not come so far yet
            time.sleep(0.1)
    raise TimeoutError


def receive(connection, source):
    received = 0
    with connection:
        while received < size:
            received += len(connection.recv(1 << 16))
            times.append(time.monotonic())
    sources.append(source)


with socket.create_server(("", 7000)) as server:
    threads = [
        threading.Thread(target=send, args=(other,))
        for other in receivers
        if own in senders and other != own
    ]
    for thread in threads:
        thread.start()
    for other in senders:
        if own in receivers and other != own:
            connection, (source, _) = server.accept()
            threads.append(threading.Thread(target=receive, args=(connection, source)))
            threads[-1].start()
    for thread in threads:
        thread.join()
print(json.dumps([sorted(sources), times and min(times), times and max(times)]))
