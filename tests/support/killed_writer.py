"""The writer of `benchmarks.kill_roles`, in a process that kills itself at a chosen moment of a chosen write.

Usage: killed_writer.py WORK SEED MOMENT; the moment is a number: of the changes to files below the index.
"""

import os
import signal
import sys
from pathlib import Path

from benchmarks.kill_roles import INDEX, write

CHANGES = {"open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.rmtree"}


def main(work: Path, seed: int, moment: int) -> None:
    index = str((work / INDEX).resolve())
    seen = 0

    def hook(event: str, values: tuple) -> None:
        nonlocal seen
        reads = event == "open" and not values[2] & (os.O_WRONLY | os.O_RDWR)
        if event in CHANGES and not reads and str(values[0]).startswith(index):
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    for _ in write(work, seed):
        pass


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
