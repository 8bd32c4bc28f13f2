"""Runs a log through AccaSim, FCFS with first fit, without output files; prints the seconds of processor time it took.

Its own log says how many jobs it did."""
import collections
import collections.abc
import json
import sys
import time

# Names that Python 3.10 took away and AccaSim's dependencies of its day still use.
for name in ("Callable", "Hashable", "Iterable", "Mapping", "MutableMapping", "Sequence"):
    if not hasattr(collections, name):
        setattr(collections, name, getattr(collections.abc, name))

from accasim.base.allocator_class import FirstFit  # noqa: E402
from accasim.base.scheduler_class import FirstInFirstOut  # noqa: E402
from accasim.base.simulator_class import Simulator  # noqa: E402

log, nodes, directory = sys.argv[1], int(sys.argv[2]), sys.argv[3]
config = directory + "/system.json"
with open(config, "w") as file:
    system = {
        "system_name": "machine",
        "start_time": 0,
        "equivalence": {"processor": {"core": 1}},
        "groups": {"node": {"core": 1, "mem": 1}},
        "resources": {"node": nodes},
    }
    json.dump(system, file)
began = time.process_time()
simulator = Simulator(
    log,
    config,
    FirstInFirstOut(FirstFit()),
    RESULTS_FOLDER_PATH=directory,
    scheduling_output=False,
    statistics_output=False,
)
simulator.start_simulation()
seconds = time.process_time() - began
print(json.dumps({"seconds": seconds}))
