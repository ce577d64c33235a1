"""A server that enqueued before it forked: each child enqueues, from its main thread and from others, and so does the
parent afterwards. Prints the ids."""

from __future__ import annotations

import os
import sys
import threading

from windlass import Windlass

CHILDREN = 3
THREADS = 4

app = Windlass(sys.argv[1] if __name__ == "__main__" else None)


@app.job
def add(a: int) -> int:
    return a


def enqueue(number: int) -> None:
    os.write(1, f"{add.enqueue(number).id}\n".encode())  # print writes a line in two pieces


def child(number: int) -> None:
    enqueue(number)
    threads = [threading.Thread(target=enqueue, args=(number,)) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    app.close()


if __name__ == "__main__":
    enqueue(0)
    children = []
    for number in range(CHILDREN):
        pid = os.fork()
        if pid == 0:
            child(number)
            os._exit(0)
        children.append(pid)
    enqueue(0)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    enqueue(0)
    sys.exit(max(codes))
