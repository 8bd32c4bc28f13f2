//! A table of bad inputs: for each, the binary reports file, line and field, exits with the documented code
//! and starts nothing.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

const BAD_INPUT: i32 = 2;
const LACKING: i32 = 3;
const NOBODY: u32 = 65534;

/// Far longer than a refusal takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A valid run file; each case makes one thing in it invalid.
const VALID: &str = "\
cluster:
  nodes: 2
  memory: 1GiB
  network: {rate: 100Mbit}
scheduler:
  policy: hybrid
  quantum: 10s
jobs:
  - name: cg
    command: [./program, --class, A]
    ranks: 2
    memory: 300MiB
    count: 2
  - name: ep
    command: [sh, -c, exit]
    ranks: 4
    memory: 20MiB
";

/// An invalid file: `new` replaces `old`, and the error must name `line` and `field` and contain each text of
/// `messages`.
struct Case {
    what: &'static str,
    old: &'static str,
    new: &'static str,
    line: u32,
    field: &'static str,
    messages: &'static [&'static str],
}

macro_rules! cases {
    ($($what:literal: $old:literal => $new:literal, line $line:literal, $field:literal, $messages:tt;)*) => {
        &[$(Case { what: $what, old: $old, new: $new, line: $line, field: $field, messages: &$messages }),*]
    };
}

mod node_schedulers;

#[rustfmt::skip]
const CASES: &[Case] = cases![
    // The text itself.
    "malformed YAML": "nodes: 2" => "nodes: [2", line 3, "YAML", [];
    "a tab for indentation": "  nodes: 2" => "\tnodes: 2", line 2, "YAML", [];
    "an empty file": "*" => "", line 1, "", [];
    "a second document": "    memory: 20MiB" => "    memory: 20MiB\n---\n{}", line 18, "YAML", [];
    "an alias of nothing": "memory: 20MiB" => "memory: *none", line 17, "YAML", [];
    "a field twice": "  nodes: 2" => "  nodes: 2\n  nodes: 3", line 3, "YAML", ["nodes"];
    "nesting without end": "count: 2" => "count: [[[[[[[[[[[[[[[[[[[[[[2]]]]]]]]]]]]]]]]]]]]]]",
        line 13, "YAML", [];
    // The shape of the file.
    "an unknown field": "ranks: 2" => "rank: 2", line 11, "jobs[0].rank", ["did you mean `ranks`?"];
    "an unknown part": "scheduler:" => "schedular:", line 5, "schedular", ["did you mean `scheduler`?"];
    "an unknown field without a likeness": "count: 2" => "zebra: 2",
        line 13, "jobs[0].zebra", ["known here are"];
    "node sets": "memory: 1GiB" => "memory: 1GiB\n  partitions: []",
        line 4, "cluster.partitions", ["a cluster is divided by `scheduler.partitions`"];
    "node sets beside the nodes": "memory: 1GiB" => "memory: 1GiB\n  sets: []",
        line 4, "cluster.sets", ["belong into `scheduler`, with `policy: batch`"];
    "divided nodes": "memory: 1GiB" => "memory: 1GiB\n  cpus: 4",
        line 4, "cluster.cpus", ["coswitch simulate --cpus"];
    "a missing field": "    memory: 20MiB\n" => "",
        line 14, "jobs[1].memory", ["the field `memory` is missing"];
    "a list for a value": "memory: 1GiB" => "memory: [1GiB]",
        line 3, "cluster.memory", ["a list stands where a single value belongs"];
    "a value for a list": "command: [sh, -c, exit]" => "command: sh",
        line 15, "jobs[1].command", ["a list (", "belongs"];
    "nothing for a value": "memory: 1GiB" => "memory:", line 3, "cluster.memory", ["nothing stands where"];
    // Units and numbers.
    "a wrong unit of memory": "memory: 1GiB" => "memory: 1parsec",
        line 3, "cluster.memory", ["`parsec`", "use one of B, KiB, MiB"];
    "memory without unit": "memory: 300MiB" => "memory: 300",
        line 12, "jobs[0].memory", ["has no unit; write for example `512MiB`"];
    "no number": "memory: 300MiB" => "memory: much",
        line 12, "jobs[0].memory", ["does not begin with a number"];
    "no memory at all": "memory: 1GiB" => "memory: 0B", line 3, "cluster.memory", ["holds no job"];
    "a wrong unit of time": "quantum: 10s" => "quantum: 10parsec",
        line 7, "scheduler.quantum", ["us, ms, s, min, h, d"];
    "a quantum of nothing": "quantum: 10s" => "quantum: 0s",
        line 7, "scheduler.quantum", ["shorter than any switch"];
    "a wrong unit of rate": "rate: 100Mbit" => "rate: 100MB",
        line 4, "cluster.network.rate", ["bit, kbit, Mbit, Gbit"];
    "zero nodes": "nodes: 2" => "nodes: 0", line 2, "cluster.nodes", ["not a number of nodes from 1 to"];
    "too many nodes": "nodes: 2" => "nodes: 1000000",
        line 2, "cluster.nodes", ["not a number of nodes from 1 to"];
    "zero ranks": "ranks: 2" => "ranks: 0", line 11, "jobs[0].ranks", ["at least 1 rank"];
    "ranks below zero": "ranks: 2" => "ranks: -2", line 11, "jobs[0].ranks", ["not a whole number"];
    "too many ranks": "ranks: 2" => "ranks: 100000", line 11, "jobs[0].ranks", ["at most"];
    "half a rank": "ranks: 2" => "ranks: 0.5", line 11, "jobs[0].ranks", ["not a whole number"];
    "a count of zero": "count: 2" => "count: 0", line 13, "jobs[0].count", ["0 jobs are none"];
    "too many jobs": "count: 2" => "count: 4000000000", line 13, "jobs[0].count", ["more than 1000 jobs"];
    "a priority beyond its range": "count: 2" => "priority: 1001",
        line 13, "jobs[0].priority", ["not a whole number from -1000 to 1000"];
    "half a priority": "count: 2" => "priority: 0.5",
        line 13, "jobs[0].priority", ["not a whole number from -1000 to 1000"];
    "a job of a user that the machine does not know": "count: 2" => "user: no-such-user",
        line 13, "jobs[0].user", ["this machine has no user `no-such-user`", "getent passwd"];
    // Words.
    "an unknown policy": "policy: hybrid" => "policy: hibrid",
        line 6, "scheduler.policy", ["did you mean `hybrid`?"];
    "a policy that is only simulated": "policy: hybrid" => "policy: rms",
        line 6, "scheduler.policy", ["coswitch simulate --queue rms"];
    "an unknown queue": "quantum: 10s" => "queue: backfill",
        line 7, "scheduler.queue", ["`backfill` is not a queue", "fcfs, easy, conservative, aging"];
    "a queue that is only simulated": "quantum: 10s" => "queue: rms",
        line 7, "scheduler.queue", ["coswitch simulate --queue rms"];
    "a queue where jobs share nodes": "quantum: 10s" => "queue: easy",
        line 7, "scheduler.queue", ["nodes of their own", "write `policy: batch`"];
    "an allocator where jobs share nodes": "quantum: 10s" => "allocator: m2db",
        line 7, "scheduler.allocator", ["write `policy: batch`"];
    "an allocator that divides nodes": "quantum: 10s" => "allocator: boxes",
        line 7, "scheduler.allocator", ["first-fit, contiguous, buddy, buddy-2d, m2db"];
    "a job of which a queue does not know how long it runs":
        "policy: hybrid" => "policy: batch\n  queue: easy", line 10, "jobs[0].time_limit",
        ["the queue `easy` has to know", "give the job a `time_limit`"];
    "a job that the allocator gives no nodes":
        "policy: hybrid" => "policy: batch\n  allocator: buddy-2d", line 12, "jobs[0].ranks",
        ["needs 2 nodes, and the allocator `buddy-2d` gives a job 1 at most"];
    "node sets where jobs share nodes": "quantum: 10s" => "sets: [{name: a, width: 2}]",
        line 7, "scheduler.sets", ["nodes of their own", "write `policy: batch`"];
    "node sets without groups": "policy: hybrid" => "policy: batch\n  sets: [{name: a, width: 2}]",
        line 7, "scheduler.sets", ["there is no `scheduler.groups` with it", "`groups: [{name: all"];
    "a set whose width is no number": "policy: hybrid" =>
        "policy: batch\n  sets: [{name: all, width: wide}]\n  groups: [{name: all, sets: [all]}]",
        line 7, "scheduler.sets[0].width", ["`wide` is not a whole number from 0 to 4294967295"];
    "hours that are no whole number": "policy: hybrid" => "policy: batch\n  prime_time: {from: 8.5}",
        line 7, "scheduler.prime_time.from", ["`8.5` is not a whole number from 0 to 255"];
    "weekends that are neither": "policy: hybrid" => "policy: batch\n  prime_time: {weekends: never}",
        line 7, "scheduler.prime_time.weekends", ["`never` is not `true` or `false`"];
    "a queue for too many nodes": "policy: hybrid" =>
        "policy: batch\n  queues: [{name: all, group: all, nodes: 5000000000}]",
        line 7, "scheduler.queues[0].nodes", ["`5000000000` is not a whole number"];
    "points that are no number": "policy: hybrid" => "policy: batch\n  age_factor: some",
        line 7, "scheduler.age_factor", ["`some` is not a whole number"];
    "hours without node sets": "policy: hybrid" => "policy: batch\n  prime_time: {from: 8}",
        line 7, "scheduler.prime_time", ["there is no `scheduler.sets` with it"];
    "a group of a set that there is not":
        "policy: hybrid" =>
        "policy: batch\n  sets: [{name: a, width: 2}]\n  groups:\n    - {name: g, sets: [b]}",
        line 9, "scheduler.groups[0]", ["`g` names the set `b`", "there are the sets `a`"];
    "a group without nodes":
        "policy: hybrid" =>
        "policy: batch\n  sets: [{name: a, width: 2}]\n  groups:\n    - {name: g, sets: []}",
        line 9, "scheduler.groups[0]", ["the group `g` has no nodes", "name at least one set"];
    "sets of more nodes than there are":
        "policy: hybrid" => "policy: batch\n  sets: [{name: a, width: 3}]\n  groups: [{name: g, sets: [a]}]",
        line 7, "scheduler.sets", ["have 3 nodes together, and the cluster has 2"];
    "a set of a node that there is not":
        "policy: hybrid" =>
        "policy: batch\n  sets: [{name: a, nodes: [0, 7]}]\n  groups: [{name: g, sets: [a]}]",
        line 7, "scheduler.sets[0]", ["names the node `7`", "the nodes are 0 to 1"];
    "hours that end before they begin":
        "policy: hybrid" =>
        "policy: batch\n  sets: [{name: a, width: 2}]\n  groups: [{name: g, sets: [a]}]\n  \
            prime_time: {from: 20, to: 8}",
        line 9, "scheduler.prime_time", ["`prime_time.to` is 8", "not before its begin"];
    "a limit that the queue does not apply":
        "policy: hybrid" =>
        "policy: batch\n  sets: [{name: a, width: 2}]\n  groups: [{name: g, sets: [a]}]\n  \
            queues: [{name: q, group: g, running: 1}]",
        line 9, "scheduler.queues[0]", ["the queue `q` limits how many", "write `queue: aging`"];
    "a job of a group that there is not":
        "policy: hybrid\n  quantum: 10s\njobs:\n  - name: cg" =>
        "policy: batch\n  sets: [{name: a, width: 2}]\n  groups: [{name: night, sets: [a]}]\njobs:\n  \
            - name: cg\n    group: nigth",
        line 11, "jobs[0].group", ["there is no group `nigth`; there are night"];
    "a job larger than its group":
        "policy: hybrid\n  quantum: 10s\njobs:\n  - name: cg\n    command: [./program, --class, A]\n    \
            ranks: 2\n    memory: 300MiB" =>
        "policy: batch\n  sets: [{name: a, width: 1}, {name: b, width: 1}]\n  \
            groups: [{name: all, sets: [a, b]}, {name: one, sets: [a]}]\njobs:\n  - name: cg\n    \
            group: one\n    command: [./program, --class, A]\n    ranks: 2\n    memory: 600MiB",
        line 13, "jobs[0].ranks", ["needs 2 nodes, and its group `one` gives a job 1 at most"];
    "a job that runs for longer than its queue lets it":
        "policy: hybrid\n  quantum: 10s\njobs:\n  - name: cg" =>
        "policy: batch\n  sets: [{name: a, width: 2}]\n  groups: [{name: g, sets: [a]}]\n  \
            queues: [{name: q, group: g, hours: 1}]\njobs:\n  - name: cg\n    time_limit: 2h",
        line 12, "jobs[0].time_limit", ["its queue lets a job run for 1 h at most"];
    "a group where all nodes are alike": "count: 2" => "group: night",
        line 13, "jobs[0].group", ["the cluster is not divided (`scheduler.sets`)"];
    "a queue that takes no job": "quantum: 10s" => "max_queued: 0",
        line 7, "scheduler.max_queued", ["no job could be submitted"];
    "a queue that takes no job of a user": "quantum: 10s" => "max_queued_per_user: 0",
        line 7, "scheduler.max_queued_per_user", ["no job could be submitted"];
    "partitions that leave a node out": "policy: hybrid\n  quantum: 10s" =>
        "policy: batch\n  partitions: [{name: day, nodes: [0]}]",
        line 7, "scheduler.partitions", ["1 nodes together, and the cluster has 2", "name each node"];
    "a partition of a node that there is not": "policy: hybrid\n  quantum: 10s" =>
        "policy: batch\n  partitions: [{name: day, nodes: [0, 7]}]",
        line 7, "scheduler.partitions[0]", ["names the node `7`"];
    "a node in two partitions": "policy: hybrid\n  quantum: 10s" =>
        "policy: batch\n  partitions: [{name: day, nodes: [0]}, {name: night, nodes: [0, 1]}]",
        line 7, "scheduler.partitions[1]", ["the node `0`, which is in a set already"];
    "partitions beside sets": "policy: hybrid\n  quantum: 10s" =>
        "policy: batch\n  sets: [{name: a, width: 2}]\n  partitions: [{name: day, nodes: [0, 1]}]",
        line 7, "scheduler.sets", ["`scheduler.partitions` divide the cluster already"];
    "partitions under a policy that has none": "quantum: 10s" => "partitions: [{name: day, nodes: [0, 1]}]",
        line 7, "scheduler.partitions", ["write `policy: batch`"];
    "a partition in which no job may run": "policy: hybrid\n  quantum: 10s" =>
        "policy: batch\n  partitions: [{name: day, nodes: [0, 1], time_limit: 0s}]",
        line 7, "scheduler.partitions[0].time_limit", ["for example `10min`"];
    "an unknown partition": "policy: hybrid\n  quantum: 10s\njobs:\n  - name: cg" =>
        "policy: batch\n  partitions: [{name: day, nodes: [0, 1]}]\njobs:\n  - name: cg\n    partition: dya",
        line 10, "jobs[0].partition", ["there is no partition `dya`; there are day"];
    "a partition where all nodes are alike": "count: 2" => "partition: day",
        line 13, "jobs[0].partition", ["the cluster has no partitions"];
    "a partition and a queue": "policy: hybrid\n  quantum: 10s\njobs:\n  - name: cg" =>
        "policy: batch\n  partitions: [{name: day, nodes: [0, 1]}]\njobs:\n  - name: cg\n    \
            partition: day\n    queue: day",
        line 10, "jobs[0].partition", ["the job names a queue as well"];
    "a job that runs for longer than its partition lets it":
        "policy: hybrid\n  quantum: 10s\njobs:\n  - name: cg" =>
        "policy: batch\n  partitions: [{name: day, nodes: [0, 1], time_limit: 90s}]\njobs:\n  - name: cg\n\
            \x20   time_limit: 2min",
        line 10, "jobs[0].time_limit", ["its queue lets a job run for 1 min 30 s at most"];
    "a time limit that is longer than the longest": "policy: hybrid\n  quantum: 10s\njobs:\n  - name: cg" =>
        "policy: hybrid\n  time_limit_max: 1h\njobs:\n  - name: cg\n    time_limit: 2h",
        line 10, "jobs[0].time_limit", ["longer than that of any job here, 1 h (`time_limit_max`)"];
    "a usual time limit that is longer than the longest":
        "quantum: 10s" => "time_limit_default: 2h\n  time_limit_max: 1h",
        line 7, "scheduler.time_limit_default", ["a time limit of 2 h is longer", "write a shorter time"];
    "a longest time limit of nothing": "quantum: 10s" => "time_limit_max: 0s",
        line 7, "scheduler.time_limit_max", ["for example `12h`"];
    "a time limit of nothing": "count: 2" => "time_limit: 0s",
        line 13, "jobs[0].time_limit", ["for example `10min`"];
    "a time limit without unit": "count: 2" => "time_limit: 10",
        line 13, "jobs[0].time_limit", ["has no unit"];
    "an unknown way of packing": "quantum: 10s" => "packing: tight",
        line 7, "scheduler.packing", ["known are first-fit, best-fit, buddy, exact"];
    "a gang that would be split": "quantum: 10s" => "alternate: partial",
        line 7, "scheduler.alternate", ["on some of its nodes only; use `whole`"];
    "a rotation of jobs with a quantum for sets": "quantum: 10s" => "quantum: auto\n  rotation: job",
        line 8, "scheduler.rotation", ["needs a `quantum` of its own"];
    "a rotation of jobs without sets": "policy: hybrid" => "policy: gang\n  rotation: job",
        line 7, "scheduler.rotation", ["only `policy: hybrid` does; use `set`"];
    "a way of switching that is none": "quantum: 10s" => "switching: prefetched",
        line 7, "scheduler.switching", ["`prefetch`"];
    "a way out of short memory that is none": "quantum: 10s" => "short_of_memory: wait",
        line 7, "scheduler.short_of_memory", ["sequential, swap"];
    "jobs that may exceed memory and are stopped where they do":
        "quantum: 10s" => "short_of_memory: swap", line 7, "scheduler.short_of_memory",
        ["`needs: measured` stops those that do", "write `needs: declared`"];
    "an oracle that is none": "quantum: 10s" => "oracle: delphi",
        line 7, "scheduler.oracle", ["exact, greedy"];
    "a residency that is none": "quantum: 10s" => "residency: all",
        line 7, "scheduler.residency", ["planned, none"];
    "a word for needs that is none": "quantum: 10s" => "needs: guessed",
        line 7, "scheduler.needs", ["measured, declared"];
    "a way of parking that is none": "quantum: 10s" => "park: valet",
        line 7, "scheduler.park", ["criu, pageout, suspend"];
    "a longest quantum without unit": "quantum: 10s" => "quantum_max: 10",
        line 7, "scheduler.quantum_max", ["unit"];
    // More than any swap space holds.
    "jobs that do not fit together, may not leave, and cannot be swapped": "*" =>
        "cluster: {nodes: 1, memory: 900TiB}\nscheduler: {policy: gang, park: suspend}\njobs:\n  \
         - {name: a, command: [./program], ranks: 1, memory: 800TiB, count: 2}\n",
        line 2, "scheduler.park", ["1600TiB on node-0, which has 900TiB", "swap", "write `criu`", "swapon"];
    "sets that do not fit together, may overlap, and cannot be swapped": "*" =>
        "cluster: {nodes: 1, memory: 900TiB}\nscheduler: {needs: declared, short_of_memory: swap}\njobs:\n  \
         - {name: a, command: [./program], ranks: 1, memory: 800TiB, count: 2}\n",
        line 2, "scheduler.short_of_memory", ["1600TiB on node-0, which has 900TiB", "write `sequential`"];
    "jobs that stay in memory and always leave it": "quantum: 10s" => "park: suspend\n  residency: none",
        line 8, "scheduler.residency", ["`park: suspend` never does", "leave `residency` out"];
    "an unknown way of a program": "count: 2" => "program: send",
        line 13, "jobs[0].program", ["did you mean `sent`?", "shared, sent"];
    "an unknown way of waiting": "count: 2" => "wait: sleep", line 13, "jobs[0].wait", ["known are spin"];
    "hosts whose links have a rate": "nodes: 2" => "nodes: [alpha, beta]", line 4, "cluster.network.rate",
        ["only the links of virtual nodes"];
    "encryption of a kind": "{rate: 100Mbit}" => "{encryption: aes}", line 4, "cluster.network.encryption",
        ["`aes` is not a setting of encryption", "known are on, off"];
    "a host that is named twice": "nodes: 2" => "nodes: [alpha, {host: alpha}]", line 2, "cluster.nodes[1]",
        ["`alpha` is named twice", "virtual"];
    "a host that ssh would take for an option": "nodes: 2" => "nodes: [-oProxyCommand=x]",
        line 2, "cluster.nodes[0]", ["not the name of a host", "as `ssh` takes it"];
    "an address of two words": "nodes: 2" => "nodes: [{host: alpha, address: ten eleven}]",
        line 2, "cluster.nodes[0].address", ["not the address of a host"];
    "a host with an unknown field": "nodes: 2" => "nodes: [{host: alpha, adress: beta}]",
        line 2, "cluster.nodes[0].adress", ["did you mean `address`"];
    "a host without memory": "nodes: 2" => "nodes: [{host: alpha, memory: 0B}]",
        line 2, "cluster.nodes[0].memory", ["holds no job"];
    "processors of a host that are no list": "nodes: 2" => "nodes: [{host: alpha, processors: 7-3}]",
        line 2, "cluster.nodes[0].processors", ["`7-3` is not a list of processors"];
    "two directories of a host that are one": "nodes: 2" =>
        "nodes: [{host: alpha, store: [{directory: /a}, {directory: /a}]}]",
        line 2, "cluster.nodes[0].store[1].directory", ["cluster.nodes[0].store[0]"];
    "a job too large for hosts that differ": "*" =>
        "cluster:\n  nodes: [{host: alpha, memory: 1GiB}, {host: beta, memory: 2GiB}]\njobs:\n  \
         - {name: a, command: [./program], ranks: 4, memory: 900MiB}\n",
        line 4, "jobs[0].memory", ["larger than the cluster: 4 rank(s) of 900MiB", "2 nodes of 1GiB to 2GiB"];
    "no host at all": "nodes: 2" => "nodes: []", line 2, "cluster.nodes", ["0 hosts", "from 1 to 64"];
    "nodes from slurm": "nodes: 2" => "nodes: slurm", line 2, "cluster.nodes",
        ["no allocation of Slurm", "sbatch"];
    "no patience with a node": "memory: 1GiB" => "memory: 1GiB\n  lost_after: 5s",
        line 4, "cluster.lost_after", ["noticed only after 5 s"];
    "a mean time between failures without a unit": "memory: 1GiB" =>
        "memory: 1GiB\n  mean_time_between_failures: 7",
        line 4, "cluster.mean_time_between_failures", ["write a time such as `7d`, or `never`"];
    "nodes that fail all the time": "memory: 1GiB" => "memory: 1GiB\n  mean_time_between_failures: 10ms",
        line 4, "cluster.mean_time_between_failures", ["a node that fails so often cannot run a job"];
    "more copies than other nodes": "memory: 1GiB" => "memory: 1GiB\n  copies: 2",
        line 4, "cluster.copies", ["2 copies need 2 other nodes, and there are 1", "`0` makes no copies"];
    "copies that are no number": "memory: 1GiB" => "memory: 1GiB\n  copies: many",
        line 4, "cluster.copies", ["many"];
    "no patience with the master": "memory: 1GiB" => "memory: 1GiB\n  stop_after: never",
        line 4, "cluster.stop_after", ["does not begin with a number"];
    // Where images go.
    "an arena without unit": "memory: 1GiB" => "memory: 1GiB\n  arena: 64",
        line 4, "cluster.arena", ["has no unit"];
    "an arena larger than its node": "memory: 1GiB" => "memory: 1GiB\n  arena: 2GiB",
        line 4, "cluster.arena", ["larger than a node, which has 1GiB"];
    "a store that is nowhere": "memory: 1GiB" => "memory: 1GiB\n  store: nowhere",
        line 4, "cluster.store", ["there is no directory", "nowhere"];
    "a mapping for a store": "memory: 1GiB" => "memory: 1GiB\n  store: {directory: .}",
        line 4, "cluster.store", ["a mapping", "stands where a single value belongs"];
    "a store without directories": "memory: 1GiB" => "memory: 1GiB\n  store: []",
        line 4, "cluster.store", ["without directories"];
    "a tier without directory": "memory: 1GiB" => "memory: 1GiB\n  store: [{size: 9GiB}]",
        line 4, "cluster.store[0].directory", ["the field `directory` is missing"];
    "a tier that is nowhere": "memory: 1GiB" =>
        "memory: 1GiB\n  store:\n    - directory: .\n    - directory: nowhere",
        line 6, "cluster.store[1].directory", ["there is no directory"];
    "a tier twice": "memory: 1GiB" =>
        "memory: 1GiB\n  store:\n    - {directory: ., size: 9GiB}\n    - directory: ./.",
        line 6, "cluster.store[1].directory", ["of cluster.store[0] as well"];
    "a tier for nothing": "memory: 1GiB" => "memory: 1GiB\n  store: [{directory: ., size: 0B}]",
        line 4, "cluster.store[0].size", ["may hold nothing"];
    "an unknown word for a tier": "memory: 1GiB" => "memory: 1GiB\n  store: [{directory: ., sise: 9GiB}]",
        line 4, "cluster.store[0].sise", ["did you mean `size`?"];
    "tiers that are too small for a job": "memory: 1GiB" =>
        "memory: 1GiB\n  store: [{directory: ., size: 310MiB}]",
        line 4, "cluster.store", ["no directory takes `cg-", "which needs 316MiB", "takes 310MiB"];
    // Fields that contradict another or the machine.
    "a job that follows one below it": "ranks: 4" => "ranks: 4\n    after: [later]",
        line 17, "jobs[1].after[0]", ["there is no job `later` above this one", "before this one"];
    "a job larger than a node": "memory: 300MiB" => "memory: 1.5GiB",
        line 12, "jobs[0].memory", ["larger than a node", "1.5GiB", "1GiB", "raise `cluster.memory`"];
    "a job larger than a node by its ranks": "ranks: 4" => "ranks: 400",
        line 17, "jobs[1].memory", ["200 rank(s) of 20MiB"];
    "a name twice": "name: ep" => "name: cg-2", line 14, "jobs[1].name", ["`cg-2` is taken by jobs[0]"];
    "a name that leaves its directory": "name: ep" => "name: ../ep",
        line 14, "jobs[1].name", ["cannot name a job"];
    "no jobs": "*" => "cluster: {nodes: 1, memory: 1GiB}\njobs: []\n", line 2, "jobs", ["there is no job"];
    "an empty command": "[sh, -c, exit]" => "[]", line 15, "jobs[1].command", ["the command is empty"];
    "a missing program": "./program" => "./no-such",
        line 10, "jobs[0].command[0]", ["there is no program", "no-such"];
    "a program that is not in PATH": "[sh," => "[no-such-program,",
        line 15, "jobs[1].command[0]", ["in PATH"];
    "a program that is not executable": "./program" => "./case.yaml",
        line 10, "jobs[0].command[0]", ["is not executable", "chmod +x"];
    "a directory for a program": "./program" => "./.", line 10, "jobs[0].command[0]", ["is not a file"];
    "a missing working directory": "count: 2" => "cwd: nowhere",
        line 13, "jobs[0].cwd", ["there is no directory"];
    "a variable that is coswitch's own": "count: 2" => "env: {PMI_RANK: 1}",
        line 13, "jobs[0].env.PMI_RANK", ["set by coswitch itself"];
];

/// A directory with a run file and an executable program beside it.
struct Scene {
    directory: tempfile::TempDir,
}

impl Scene {
    fn with(text: &str) -> Self {
        let scene = Self { directory: tempfile::tempdir().unwrap() };
        fs::write(scene.file(), text).unwrap();
        let program = scene.directory.path().join("program");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        scene
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("case.yaml")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        finish(&mut self.command(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coswitch"));
        command.args(arguments).arg(self.file()).current_dir(self.directory.path());
        command
    }

    /// Whether nothing was started: not even the directory of a run exists.
    fn is_untouched(&self) -> bool {
        fs::read_dir(self.directory.path()).unwrap().count() == 2
    }
}

fn finish(command: &mut Command) -> Output {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{command:?} did not end in {LIMIT:?}");
        }
        thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().unwrap()
}

fn stderr(output: &Output) -> String {
    // Messages are wrapped to the width of the terminal.
    String::from_utf8_lossy(&output.stderr).replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn invalid_file(case: &Case) -> String {
    if case.old == "*" {
        return case.new.into();
    }
    assert_eq!(VALID.matches(case.old).count(), 1, "{}: the replaced text must occur once", case.what);
    VALID.replace(case.old, case.new)
}

#[test]
fn the_valid_file_is_accepted() {
    let output = Scene::with(VALID).run(&["check"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn every_invalid_file_is_reported_with_file_line_and_field() {
    let mut wrong = Vec::new();
    let cases: Vec<&Case> = CASES.iter().chain(node_schedulers::CASES).collect();
    for case in &cases {
        let scene = Scene::with(&invalid_file(case));
        let output = scene.run(&["run"]);
        let errors = stderr(&output);
        let place = format!("case.yaml:{}:", case.line);
        let whole =
            [place.as_str(), case.field].iter().chain(case.messages).all(|part| errors.contains(part));
        if !whole || output.status.code() != Some(BAD_INPUT) || !scene.is_untouched() {
            wrong.push(format!("{} (wants {place} {} {:?}): {errors}", case.what, case.field, case.messages));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn memory_that_slurm_knows_is_not_missed_where_another_field_is() {
    let text = "cluster: {nodes: slurm}\njobs: [{name: ep, memory: 20MiB, command: [sh]}]\n";
    let output = Scene::with(text).run(&["run"]);
    let errors = stderr(&output);
    assert_eq!(output.status.code(), Some(BAD_INPUT), "{errors}");
    assert!(errors.contains("jobs[0].ranks") && !errors.contains("cluster.memory"), "{errors}");
}

/// Three directories for images that user `nobody` could replace, and what the refusal says of each.
#[test]
fn a_store_that_somebody_else_could_replace_is_refused_with_its_line_and_field() {
    let scene = Scene::with(&VALID.replace("  memory: 1GiB", "  memory: 1GiB\n  store: images"));
    let images = scene.directory.path().join("images");
    fs::create_dir_all(images.join("below")).unwrap();
    let set = |owner: u32, mode: u32| {
        chown(&images, Some(owner), None).unwrap();
        fs::set_permissions(&images, fs::Permissions::from_mode(mode)).unwrap();
    };
    let check = |arguments: &[&str]| {
        let output = scene.run(arguments);
        (output.status.code(), stderr(&output))
    };
    let below = VALID.replace("  memory: 1GiB", "  memory: 1GiB\n  store: [{directory: images/below}]");
    for (what, owner, mode, text, says) in [
        ("of nobody", NOBODY, 0o755, None, ["cluster.store", "belongs to nobody", "`chown root"]),
        ("open", 0, 0o777, None, ["cluster.store", "writable by others (mode 777)", "`chmod go-w"]),
        ("below", NOBODY, 0o755, Some(&below), ["store[0].directory", "belongs to nobody", "`chown root"]),
    ] {
        set(owner, mode);
        text.iter().for_each(|text| fs::write(scene.file(), text).unwrap());
        for command in ["check", "run"] {
            let (code, errors) = check(&[command]);
            let whole = says.iter().chain(&["case.yaml:4:", "images"]).all(|part| errors.contains(part));
            assert!(whole && code == Some(BAD_INPUT), "{what}, {command}: {errors}");
        }
    }
    assert_eq!(fs::read_dir(images.join("below")).unwrap().count(), 0);
    assert!(!scene.directory.path().join("coswitch-runs").exists(), "nothing is started");
    for mode in [0o700, 0o755, 0o1777] {
        set(0, mode);
        assert_eq!(check(&["check"]).0, Some(0), "mode {mode:o} is fine");
    }
}

#[test]
fn all_problems_of_a_file_are_reported_at_once_as_json_too() {
    let text = VALID.replace("ranks: 2", "ranks: 0").replace("1GiB", "1parsec").replace("count", "cuont");
    let output = Scene::with(&text).run(&["check", "--output", "json"]);
    assert_eq!(output.status.code(), Some(BAD_INPUT));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let problems = answer["problems"].as_array().unwrap();
    let reported: Vec<_> = problems.iter().map(|problem| (&problem["line"], &problem["field"])).collect();
    let fields = ["cluster.memory", "jobs[0].ranks", "jobs[0].cuont"].map(serde_json::Value::from);
    let lines = [3, 11, 13].map(serde_json::Value::from);
    assert_eq!(reported, lines.iter().zip(&fields).collect::<Vec<_>>());
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let scene = Scene::with("");
    fs::remove_file(scene.file()).unwrap();
    for (what, words) in
        [("missing", "No such file"), ("directory", "not a file"), ("huge", "at most"), ("binary", "UTF-8")]
    {
        match what {
            "directory" => fs::create_dir(scene.file()).unwrap(),
            "huge" => fs::write(scene.file(), "#".repeat(3 << 20)).unwrap(),
            "binary" => fs::write(scene.file(), [0xff, 0xfe, 0, 1]).unwrap(),
            _ => {}
        }
        let output = scene.run(&["run"]);
        let errors = stderr(&output);
        assert!(errors.contains("case.yaml") && errors.contains(words), "{what}: {errors}");
        assert_eq!(output.status.code(), Some(BAD_INPUT), "{what}: {errors}");
        if what == "directory" {
            fs::remove_dir(scene.file()).unwrap();
        }
    }
}

#[test]
fn a_file_that_expands_to_a_huge_document_is_refused_before_it_expands() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..9 {
        let again = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{again}]\n"));
    }
    let began = Instant::now();
    let output = Scene::with(&bomb).run(&["check"]);
    assert_eq!(output.status.code(), Some(BAD_INPUT), "{}", stderr(&output));
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
}

#[test]
fn a_wrong_command_line_ends_with_the_code_of_bad_input() {
    for arguments in
        [&["rnu"][..], &["run"], &["run", "--outptu", "x", "file"], &["--output", "xml", "doctor"]]
    {
        let output = finish(Command::new(env!("CARGO_BIN_EXE_coswitch")).args(arguments));
        assert_eq!(output.status.code(), Some(BAD_INPUT), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_missing_criu_is_reported_before_anything_is_started() {
    let scene = Scene::with(VALID);
    let output = finish(scene.command(&["run"]).env("COSWITCH_CRIU", "/nowhere/criu"));
    let errors = stderr(&output);
    assert!(
        errors.contains("CRIU") && errors.contains("/nowhere/criu") && errors.contains("cargo xtask setup"),
        "{errors}"
    );
    assert_eq!(output.status.code(), Some(LACKING), "{errors}");
    assert!(scene.is_untouched());
}

#[test]
fn a_user_other_than_root_is_refused() {
    let scene = Scene::with(VALID);
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(scene.directory.path(), open.clone()).unwrap();
    // The build directory may be closed to other users, so the user `nobody` runs a copy.
    let program = scene.directory.path().join("coswitch");
    fs::copy(env!("CARGO_BIN_EXE_coswitch"), &program).unwrap();
    fs::set_permissions(&program, open).unwrap();
    let mut command = Command::new(&program);
    if nix::unistd::geteuid().is_root() {
        command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program);
    }
    let output = finish(command.arg("run").arg(scene.file()).current_dir("/"));
    let errors = stderr(&output);
    assert!(errors.contains("not root") && errors.contains("run coswitch as root"), "{errors}");
    assert_eq!(output.status.code(), Some(LACKING), "{errors}");
}
