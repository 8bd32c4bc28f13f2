"""Pi by the midpoint rule on all ranks, with pickled Python objects passed around the ring; verifies itself.

    mpiexec -n 4 python pi.py --rounds 50

Needs only mpi4py. Exit codes as for the C programs: 0 verified, 1 wrong result, 2 wrong usage.
"""

import argparse
import hashlib
import math
import random
import sys
import time

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20, help="rounds (default 20)")
    parser.add_argument("--seconds", type=float, default=0, help="repeat until this much processor time is used")
    parser.add_argument("--intervals", type=int, default=200_000, help="intervals per round (default 200000)")
    return parser.parse_args()


def midpoint_pi(intervals):
    """The integral of 4 / (1 + x^2) over [0, 1]; every rank takes every size-th interval."""
    width = 1.0 / intervals
    mine = sum(4.0 / (1.0 + ((i + 0.5) * width) ** 2) for i in range(rank, intervals, size))
    return comm.allreduce(mine * width, op=MPI.SUM)


def parcel(owner, round_number):
    """An object of many types and a random size, determined by owner and round."""
    rng = random.Random(owner * 1_000_003 + round_number)
    body = rng.randbytes(rng.choice([0, 10, 1000, 100_000, 1_000_000]))
    return {
        "owner": owner,
        "round": round_number,
        "body": body,
        "digest": hashlib.sha256(body).hexdigest(),
        "nested": [rng.random() for _ in range(rng.randrange(50))],
    }


def ring_is_right(round_number):
    """Each rank's parcel passes around the whole ring; every rank checks each parcel it receives."""
    held, good = parcel(rank, round_number), True
    for hop in range(1, size + 1):
        held = comm.sendrecv(held, dest=(rank + 1) % size, source=(rank - 1) % size, sendtag=hop, recvtag=hop)
        good &= held == parcel((rank - hop) % size, round_number)
    return good


def gather_is_right(round_number):
    """Objects through broadcast and gather, and a buffer through the fast path."""
    root = round_number % size
    sent = comm.bcast(parcel(root, round_number) if rank == root else None, root=root)
    gathered = comm.allgather((rank, sent["digest"]))
    numbers = bytearray(comm.size)
    comm.Allgather(bytes([rank % 256]), numbers)
    expected = [(r, sent["digest"]) for r in range(size)]
    return gathered == expected and list(numbers) == [r % 256 for r in range(size)]


def peak_resident_mib():
    with open("/proc/self/status") as status:
        return max(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) / 1024


def main():
    chosen = options()
    begin, round_number, good = time.monotonic(), 0, True
    used, last = 0.0, time.process_time()
    tolerance = 1.0 / chosen.intervals**2 + 1e-11  # of the rule, and of rounding
    while True:
        value = midpoint_pi(chosen.intervals)
        good &= abs(value - math.pi) <= tolerance
        good &= ring_is_right(round_number) and gather_is_right(round_number)
        round_number += 1
        now = time.process_time()
        used += now - last if now >= last else now  # the clock of a restored process begins anew
        last = now
        more = used < chosen.seconds if chosen.seconds else round_number < chosen.rounds
        if rank == 0 and round_number % 10 == 0:
            print(f"pi: round {round_number}, {value:.12f}, {time.monotonic() - begin:.1f} s", flush=True)
        if not comm.bcast(more, root=0):
            break
    verified = comm.allreduce(good, op=MPI.LAND)
    peak = comm.reduce(peak_resident_mib(), op=MPI.MAX)
    if rank == 0:
        print(f"pi: peak resident memory {peak:.1f} MiB per rank")
        print("VERIFICATION SUCCESSFUL" if verified else "VERIFICATION FAILED", flush=True)
    return 0 if verified else 1


if __name__ == "__main__":
    sys.exit(main())
