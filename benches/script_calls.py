#!/usr/bin/env python3
"""Measures the longest call of every loop of the scripts in lua/, on a Redis of its own that is filled to the documented bounds.

Usage: benches/script_calls.py [--rounds 9] [--only PATTERN] [--most MILLISECONDS]

Prints a table, and with --most fails if a call takes longer. Each call runs several times on an identical copy of its keys, and
the shortest time in Redis' slow log counts: other load on the machine only adds to it.
"""

import argparse
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The time of decisions, which the calls of lua/decide carry.
NOW = 1_800_000_000
MICROS = NOW * 1_000_000
WINDOW, BUCKET, LOG, PERMITS, BUDGET = 0, 1, 2, 3, 6
LEASES, QUEUED, RECORDS, CALLS = 65_536, 10_000, 65_535, 64


def composed(source, start, skip=""):
    """The files that a Rust source includes, one after the other."""
    text = (ROOT / source).read_text()
    text = text[text.index(start):]
    paths = re.findall(r'include_str!\("[./]*(lua/[a-z_/]+\.lua)"\)', text[: text.index(");")])
    script = "".join((ROOT / path).read_text() for path in paths if path != skip)
    # Names of numbers, which the program replaces before it loads a script.
    page = (ROOT / "docs/internals/redis-protocol-and-lua.md").read_text()
    numbers = dict(re.findall(r"^\| `([A-Z_]+)` \| (\d+) \|", page, re.MULTILINE))
    return re.sub(r"\b[A-Z][A-Z_]*\b", lambda name: numbers.get(name[0], name[0]), script)


def sources():
    return {
        "decide": composed("crates/store/src/redis/script/mod.rs", "concat!("),
        "loans": composed("crates/store/src/redis/auxiliary_scripts.rs", "concat!("),
        "control": composed("crates/control/src/redis/script_client.rs", "pub const CONTROL_SCRIPT"),
        "book": composed("crates/control/src/redis/script_client.rs", "pub const BOOK_SCRIPT"),
        "fleet": (ROOT / "lua/fleet.lua").read_text(),
    }


class Redis:
    """A server of this process, and a connection to it."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        path = f"{self.folder.name}/redis.sock"
        options = ["--port", "0", "--unixsocket", path, "--save", "", "--slowlog-log-slower-than", "0"]
        self.process = subprocess.Popen(
            ["redis-server", *options, "--slowlog-max-len", "1", "--dir", self.folder.name], stdout=subprocess.DEVNULL
        )
        for _ in range(200):
            try:
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.connect(path)
                break
            except OSError:
                time.sleep(0.05)
        self.reader = self.socket.makefile("rb")
        self.hashes = {name: self.call("SCRIPT", "LOAD", text) for name, text in sources().items()}

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def send(self, commands):
        """The replies to commands, sent a thousand at a time."""
        replies = []
        for first in range(0, len(commands), 1_000):
            some = commands[first : first + 1_000]
            self.socket.sendall(b"".join(map(packed, some)))
            replies += [self.reply() for _ in some]
        return replies

    def call(self, *command):
        return self.send([command])[0]

    def reply(self):
        line = self.reader.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            size = int(rest)
            return None if size < 0 else self.reader.read(size + 2)[:-2]
        if kind == b"*":
            # An error of one call of a command stands in its list.
            return [self.reply() for _ in range(max(int(rest), 0))]
        return int(rest) if kind == b":" else rest

    def time(self, script, keys, arguments, rounds):
        """The shortest time of a call in milliseconds, and that of one that follows it."""
        first, second = [], []
        for _ in range(rounds):
            self.send([("COPY", b"from:" + key, key, "REPLACE") for key in keys])
            for times in (first, second):
                self.call("EVALSHA", self.hashes[script], len(keys), *keys, *arguments)
                times.append(self.call("SLOWLOG", "GET", 1)[0][2] / 1_000)
            self.call("UNLINK", *keys)
        return min(first), min(second)


def packed(command):
    parts = [part if isinstance(part, bytes) else str(part).encode() for part in command]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


# lua/decide: keys and arguments, as lua/decide/entry.lua has them.


def record_id(number, kind):
    return struct.pack(">BI", number >> 32 & 255, number) + bytes([kind])


def check(kind, hits, p1, p2, extra=bytes(8), role=0, number=1):
    return record_id(number * 2_654_435_761 % 2**32, kind) + struct.pack("<Bddd", role, hits, p1, p2) + extra


def call_of(*checks, times=1):
    return struct.pack("<HH", 1, times) + b"".join(checks)


def decide(*calls, now=MICROS):
    return [str(now), *calls]


def budget_check(operation, lease, hits=1, window=3_600, ttl=60, limit=10**12):
    # A charged lease counts where it ends.
    return check(BUDGET, hits, limit, window + (ttl << 26) + (operation << 46) + (1 << 49), lease)


def lease_name(number):
    return struct.pack(">Q", 1 + number * 0x9E3779B97F4A7C15 % 2**63)


def budget(redis, key, ends, used=1):
    """Leases that end at these seconds, in the form of lua/decide/reservations.lua."""
    groups, fields = [], []
    for number, end in enumerate(ends):
        name = lease_name(number)
        fields += [name, struct.pack("<I", end) + (1).to_bytes(7, "little")]
        if not groups or len(groups[-1][1]) == 7 or groups[-1][0] != end:
            groups.append((end, []))
        groups[-1][1].append(name)
    for number, (end, names) in enumerate(groups[:-1]):
        fields += [b"b" + number.to_bytes(6, "little"), struct.pack("<I", end) + b"".join(names)]
    window_end = NOW - NOW % 3_600 + 3_600
    last = (len(groups) - 1).to_bytes(6, "little")
    header = struct.pack("<Idd", window_end, used, len(ends)) + bytes(6) + last
    header += struct.pack("<IIII", ends[0], ends[-1], len(ends), NOW + 7_200)
    fields += ["p", b"".join(groups[-1][1]), "h", header]
    redis.send([("HSET", b"from:" + key, *fields[at : at + 1_000]) for at in range(0, len(fields), 1_000)])


def log(redis, key, times):
    elements = [(at % 2**48).to_bytes(6, "big") for at in times]
    redis.send([("RPUSH", b"from:" + key, *elements[at : at + 500]) for at in range(0, len(elements), 500)])


def permits(redis, key, scores, per_lease=1):
    members = []
    for number, at in enumerate(scores):
        members += [at, lease_name(number // per_lease) + struct.pack(">H", 65_535 - number % per_lease)]
    redis.send([("ZADD", b"from:" + key, *members[at : at + 1_000]) for at in range(0, len(members), 1_000)])


def packed_cell(records, ends):
    ids = b"".join(record_id(number * 2_654_435_761 % 2**32, WINDOW) for number in range(records))
    return struct.pack("<BHI", 1, records, max(ends, NOW + 60)) + ids + struct.pack("<II", ends, 1) * records


def segmented_cell(redis, key, records, ends):
    """Filled by the script itself, 16 records a call; all end at a time that it takes from the window."""
    for first in range(0, records, 16):
        some = range(first, min(first + 16, records))
        checks = [check(WINDOW, 1, 1_000, 100_000, number=number) for number in some]
        redis.call("EVALSHA", redis.hashes["decide"], 1, b"from:" + key, *decide(call_of(*checks), now=ends))


def decide_cases(redis):
    key = [b"budget:%d" % number for number in range(CALLS)]
    peek = check(BUDGET, 0, 10**12, 3_600 + (60 << 26) + (1 << 49))
    budget(redis, key[0], [NOW - 1] * (LEASES - 1) + [NOW + 60])
    yield "decide", "65,535 of 65,536 leases end together", key[:1], decide(call_of(peek))
    yield "decide", "the same, a settlement of the last", key[:1], decide(call_of(budget_check(2, lease_name(LEASES - 1))))
    budget(redis, key[1], [NOW - 1] * LEASES)
    yield "decide", "all of 65,536 leases have ended", key[1:2], decide(call_of(peek))
    begin = NOW - NOW % 3_600
    budget(redis, key[2], [begin - 1] * (LEASES // 2) + [begin] * (LEASES // 2))
    yield "decide", "the same, half of them in an earlier window", key[2:3], decide(call_of(peek))
    budget(redis, key[3], [begin - 1 - at // 7 for at in range(LEASES - 2, -1, -1)] + [NOW + 60])
    yield "decide", "65,535 leases, 7 for each second, in earlier windows", key[3:4], decide(call_of(peek))
    for number in range(4, CALLS):
        budget(redis, key[number], [NOW - 1] * 2_000 + [NOW + 60])
    many = decide(*[call_of(peek)] * (CALLS - 4))
    yield "decide", "60 calls of a command on counters of 2,000 ended leases", key[4:], many
    budget(redis, b"full", [NOW + 60] * LEASES)
    reserve = budget_check(1, lease_name(10**6))
    yield "decide", "a reservation of a counter with 65,536 open leases", [b"full"], decide(call_of(reserve))

    lifetime, extra = 60 * 1_000_000, lease_name(10**6)
    old, recent, ahead = MICROS - lifetime - 1, MICROS - 1_000, MICROS + 10 * lifetime
    permits(redis, b"old", [old] * (QUEUED - 1) + [recent])
    permits(redis, b"ahead", [ahead] * QUEUED)
    one = check(PERMITS, 1, QUEUED, lifetime, extra)
    yield "decide", "9,999 of 10,000 permits have expired", [b"old"], decide(call_of(one))
    yield "decide", "10,000 permits in the future, of a clock that was ahead", [b"ahead"], decide(call_of(one))
    yield "decide", "100 permits are acquired", [b"none"], decide(call_of(check(PERMITS, 100, QUEUED, lifetime, extra)))
    permits(redis, b"leases", [recent + at // 100 for at in range(QUEUED)], per_lease=100)
    release = check(PERMITS, -1, QUEUED, lifetime, lease_name(3))
    yield "decide", "100 of 10,000 permits are released", [b"leases"], decide(call_of(release))
    redis.send([("COPY", name, b"from:%s:%d" % (name[5:], number)) for number in range(CALLS)
                for name in (b"from:old", b"from:ahead", b"from:leases")])
    for name, kind in (("10,000 expired permits", b"old"), ("10,000 permits in the future", b"ahead")):
        many = [b"%s:%d" % (kind, number) for number in range(CALLS)]
        yield "decide", f"64 calls on counters of {name}", many, decide(*[call_of(one)] * CALLS)
    many = [b"leases:%d" % number for number in range(CALLS)]
    yield "decide", "64 calls that release 100 of 10,000 permits", many, decide(*[call_of(release)] * CALLS)

    log(redis, b"log", [old] * (QUEUED - 1) + [recent])
    log(redis, b"ahead log", [ahead] * QUEUED)
    log(redis, b"recent log", range(recent - QUEUED, recent))
    yield "decide", "9,999 of 10,000 hits of a log have expired", [b"log"], decide(call_of(check(LOG, 1, QUEUED, lifetime)))
    yield "decide", "10,000 hits in the future, of a clock that was ahead", [b"ahead log"], decide(
        call_of(check(LOG, 1, QUEUED, lifetime))
    )
    yield "decide", "10,000 hits of one request", [b"none"], decide(call_of(check(LOG, QUEUED, QUEUED, lifetime)))
    yield "decide", "10,000 repeated requests on a log", [b"none"], decide(
        call_of(check(LOG, 1, QUEUED, lifetime), times=QUEUED)
    )
    redis.send([("COPY", name, b"from:%s:%d" % (name[5:], number)) for number in range(CALLS)
                for name in (b"from:log", b"from:ahead log")])
    for name, kind in (("10,000 expired hits", b"log"), ("10,000 hits in the future", b"ahead log")):
        many = [b"%s:%d" % (kind, number) for number in range(CALLS)]
        yield "decide", f"64 calls on logs of {name}", many, decide(*[call_of(check(LOG, 1, QUEUED, lifetime))] * CALLS)
    refund = check(LOG, -QUEUED, QUEUED, lifetime, struct.pack("<d", recent - QUEUED))
    yield "decide", "a refund of 10,000 hits of one charge", [b"recent log"], decide(call_of(refund))
    empty = [b"none:%d" % number for number in range(CALLS)]
    yield "decide", "64 requests of 48 hits on a log each", empty, decide(*[call_of(check(LOG, 48, QUEUED, lifetime))] * CALLS)
    yield "decide", "64 requests of 3 permits", empty, decide(*[call_of(check(PERMITS, 3, QUEUED, lifetime, extra))] * CALLS)

    def windows(first, count, role=0):
        return call_of(*[check(WINDOW, 1, 1_000, 100_000, role=role, number=first + at) for at in range(count)])

    segmented_cell(redis, b"segments", RECORDS - 2_000, MICROS)
    yield "decide", "192 new counters in a cell of 63,535", [b"segments"], decide(windows(RECORDS, 192))
    yield "decide", "192 new counters in a cell of 63,535, all or none", [b"segments"], decide(windows(RECORDS, 192, 1))
    yield "decide", "192 known counters in a cell of 63,535", [b"segments"], decide(windows(0, 192))
    yield "decide", "1,024 known counters in a cell of 63,535", [b"segments"], decide(windows(0, 1_024))
    yield "decide", "128 known counters, all of which have ended", [b"segments"], decide(
        windows(0, 128), now=MICROS + 200_000 * 1_000_000
    )
    redis.call("SET", b"from:packed", packed_cell(2_048, NOW + 60))
    yield "decide", "a packed cell of 2,048 records becomes a hash", [b"packed"], decide(windows(RECORDS, 1))
    cells = [b"cell:%d" % number for number in range(CALLS)]
    yield "decide", "64 calls of 3 new counters each", cells, decide(*[windows(0, 3)] * CALLS)


# The other scripts.

PAYLOAD = b"x" * 16_000


def fill(redis, kind, key, pairs):
    for at in range(0, len(pairs), 100):
        redis.call(kind, b"from:" + key, *pairs[at : at + 100])


def stream(redis, key, entries, size):
    command = ("XADD", b"from:" + key, "*", "token", "t" * 32, "entry", b"e" * size)
    redis.send([command] * entries)


def control_cases(redis):
    keys = [b"head", b"audit", b"instances", b"seen", b"book", b"system-book"]
    stream(redis, b"audit", 10_000, 3_000)
    record = b"x" * 25_600
    fill(redis, "HSET", b"instances", [part for at in range(500) for part in (f"i{at}", record)])
    later = int(time.time() * 1_000) + 600_000
    fill(redis, "HSET", b"seen", [part for at in range(500) for part in (f"i{at}", later)])
    redis.call("HSET", "from:head", "bytes", 64 << 20, "oldest", 1, "current", 1_000)

    def control(operation, *arguments, more=(), attempt="first"):
        return "control", [*keys, *more], [operation, "channel", attempt, *arguments]

    def case(name, operation, *arguments, **options):
        script, keys, values = control(operation, *arguments, **options)
        return script, name, keys, values

    yield case("250 audit entries are read", "audit", "+", 250)
    yield case("a heartbeat", "beat", "i1", record, "", "")
    yield case("50 of 500 instances are read", "instances", "", 50)
    files = b"f" * (9 << 18)
    versions = [b"version:%d" % number for number in range(1_000)]
    meta = b"m" * 3_000
    for number in range(1_000):
        size = files if number < 21 else b"f" * 1_000
        redis.call("HSET", b"from:" + versions[number], "meta", meta, "token", "t", "files", size, "size", len(size))
    yield case("200 versions are listed", "versions", more=versions[:200])
    yield case("a version of 2.25 MiB is applied", "apply", "new", 1_000, 1_001, meta, files, b"a" * 3_000, more=[b"next"])
    yield case("200 versions are deleted", "trim", 1, 999, 0, more=versions[:200])
    bans, records, watched = b"bans", b"ban records", b"watched"
    ended, active = int(time.time() * 1_000) - 1, later
    ban = b"b" * 4_096
    for prefix, ends in ((b"", active), (b"ended ", ended)):
        ids = [f"{at:032x}" for at in range(10_000)]
        fill(redis, "ZADD", prefix + bans, [part for name in ids for part in (ends, name)])
        fill(redis, "HSET", prefix + records, [part for name in ids for part in (name, ban)])
        fill(redis, "ZADD", prefix + watched, [part for name in ids[:5_000] for part in (ends, name)])
    new = [part for at in range(100) for part in (f"n{at:031x}", active, "watch", ban)]
    ended_bans = [b"ended " + key for key in (bans, records, watched)]
    yield case("100 bans are added where 10,000 have ended", "record_bans", 10_000, *new, more=ended_bans)
    yield case("100 bans are added to 10,000", "record_bans", 10_000, *new, more=[bans, records, watched])
    middle = f"{5_000:032x}"
    yield case("a page of 500 bans that end together", "bans", active, middle, 500, more=[bans, records, watched])
    yield case("a version is copied", "copy_version", "", "token", 1_001, meta, "", files, "audit", more=[b"next"])


def book_cases(redis):
    keys = [b"head", b"audit", b"records", b"revisions", b"removals", b"ends", b"heads"]
    ids = [f"{at * 0x9E3779B97F4A7C15 % 2**128:032x}" for at in range(200_000)]
    small, large = b"x" * 400, PAYLOAD
    fill(redis, "HSET", b"records", [
        part for at, name in enumerate(ids) for part in (name, large if at < 2_000 else small)
    ])
    first = 1_700_000_000_000_000
    fill(redis, "ZADD", b"revisions", [part for at, name in enumerate(ids) for part in (first + at, name)])
    fill(redis, "ZADD", b"ends", [part for name in ids for part in (1_700_000_000_000, name)])
    fill(redis, "ZADD", b"removals", [part for at in range(10_000) for part in (first + 300_000 + at, f"r{at}")])
    fill(redis, "ZADD", b"heads", [part for at in range(10_000) for part in (first + 290_000 + at,) * 2])
    stream(redis, b"audit", 10_000, 3_000)
    redis.call("HSET", "from:head", "lineage", "l", "revision", first + 300_000, "source", "s")

    def case(name, operation, *arguments, attempt="again", more=()):
        return "book", name, [*keys, *more], [operation, "channel", attempt, *arguments]

    def changes(count):
        audited = [b"a" * 3_000] + [b"a" * 3_000 if count > 50 else b""] * (count - 1)
        return [part for at in range(count) for part in (ids[2_000 + at], "any", 0, large, audited[at])]

    most = [202_000, "l", 0, "l"]
    yield case("50 records are put where 200,000 have ended", "change", "token", "all", *most, "next", *changes(50))
    yield case("100 records are put, each with an entry of the log", "change", "token", "each", *most, "apart", *changes(100))
    yield case("a page of large records", "since", 0, 500, "page")
    yield case("a page of small records", "since", first + 3_000, 500, "page")
    yield case("a page for an instance whose changes are lost", "since", first + 295_000, 500, "head")
    yield case("a page for another region", "read", "l", first + 3_000, 0, "next", 500)
    some = [part for at in range(50) for part in (first + at, ids[2_000 + at], 1, large)]
    gathered = [b"g1", b"g2", b"g3"]
    yield case("50 records are gathered", "adopt", "token", "audit", "s", "s", 1, "more", "", *some, more=gathered)
    part = [part for at in range(50) for part in (first + 400_000 + at, ids[2_000 + at], 1, large)]
    yield case(
        "50 records are copied", "adopt", "token", "audit", "s", "s", first + 500_000, "part", first, *part, more=gathered
    )
    for key, of in zip(gathered, (b"records", b"revisions", b"ends"), strict=True):
        redis.call("COPY", b"from:" + of, b"from:" + key, "REPLACE")
    yield case(
        "a copy of 200,000 records becomes active",
        "adopt", "token", "audit", "s", "s", 1, "end", "l", 200_000, 200_000, more=gathered,
    )
    restored = [part for at in range(50) for part in (first + 400_000 + at, ids[2_000 + at], 1, large)]
    yield case("50 records are restored", "restore", "token", "audit", "l", 1, "last", 0, "first", *restored)


def fleet_cases(redis):
    reports = [b"report:%d" % number for number in range(32)]
    redis.send([("SET", b"from:" + key, b"1\n" + b"r" * (64 << 10)) for key in reports])
    yield "fleet", "32 reports are read", reports, ["reports"]
    totals = [b"totals:%d" % number for number in range(180)]
    for key in totals:
        fill(redis, "HSET", key, [part for at in range(64) for part in (f"latency{at}", 10**12 + at)])
    yield "fleet", "180 intervals of 64 totals are read", totals, ["totals"]
    command = ("XADD", b"from:events", "*", "event", b"e" * 2_000)
    redis.send([command] * 1_000)
    redis.call("SET", "from:position", "0-0")
    yield "fleet", "1,000 undelivered events", [b"events", b"position"], ["undelivered", 10, 1_000, 1_000]
    yield "fleet", "250 events are read", [b"events"], ["events", "+", 250]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="")
    parser.add_argument("--most", type=float)
    options = parser.parse_args()
    redis, too_long = Redis(), []
    print("| script | call | ms | the next one |\n|---|---|---|---|", flush=True)
    try:
        for cases in (decide_cases, control_cases, book_cases, fleet_cases):
            for script, name, keys, arguments in cases(redis):
                if re.search(options.only, f"{script} {name}"):
                    took, then = redis.time(script, keys, arguments, options.rounds)
                    print(f"| {script} | {name} | {took:.1f} | {then:.1f} |", flush=True)
                    too_long += [name] if options.most and took > options.most else []
            redis.call("FLUSHALL")
    finally:
        redis.stop()
    if too_long:
        sys.exit("too long: " + "; ".join(too_long))


if __name__ == "__main__":
    main()
