"""The include graph of the product code: directories, their order and their arrows.

usage: tests/tidy/include_graph.py [top of a checkout]

A unit is a header with its sources (row_table.h, row_table.cc; foo_cuda.cu belongs to foo). ROOMS
lists the directories bottom first: a unit may include units of its own directory and of directories
above it in the list. Prints each directory with the directories that it includes, then the cycles
of units, then every violation; exits with 1 if there is a violation."""
import collections
import os
import re
import subprocess
import sys

# Bottom first.
ROOMS = [
    "common", "common/optimizer", "common/variables", "common/metrics", "common/config",
    "common/http",
    "thrift", "thrift/security", "thrift/local", "thrift/client",
    "storage",
    "ps_server/base", "ps_server/rows", "ps_server/jobs", "ps_server/persistence",
    "ps_server/moves", "ps_server/core", "ps_server/calls", "ps_server/engine", "ps_server/net",
    "ps_server/monitor", "ps_server",
    "worker/client", "worker/client/links", "worker/client/routing", "worker/client/delivery",
    "worker/client/plan", "worker/client/moves", "worker/client/impl", "worker/ops",
    "worker/collective", "worker/input", "worker/input/dataset", "worker/models",
    "worker/cluster", "worker/strategy", "worker/coordinator",
    "worker/trainer/reports", "worker/trainer/files", "worker/trainer/checkpoints",
    "worker/trainer/steps", "worker/trainer/resume", "worker/trainer/joint",
    "worker/trainer/devices", "worker/trainer/run", "worker/monitor", "worker/library", "worker/capi", "worker",
    "worker/ctl",
]
LARGEST_CIRCLE = 3
SOURCE = re.compile(r"\.(cc|h|cu|cuh)$")


def product_sources(top):
    """Paths of all product sources below `top`: from git if there is git, otherwise from the
    directory."""
    floors = ("common/", "thrift/", "storage/", "ps_server/", "worker/")
    git = subprocess.run(["git", "-C", top, "ls-files", "--cached", "--others",
                          "--exclude-standard"], capture_output=True, text=True)
    names = git.stdout.splitlines() if git.returncode == 0 else [
        os.path.relpath(os.path.join(folder, file), top)
        for folder, _, files in os.walk(top) for file in files]
    return sorted(n for n in names if n.startswith(floors) and SOURCE.search(n) and
                  os.path.isfile(os.path.join(top, n)))


def unit_of(path):
    return re.sub(r"_cuda$", "", SOURCE.sub("", path))


def room_of(unit):
    return os.path.dirname(unit)


def read_graph(top):
    """{unit: {included unit: "file:line" of one include}} over all product sources."""
    sources = product_sources(top)
    known = set(sources)
    graph = {unit_of(path): {} for path in sources}
    for path in sources:
        with open(os.path.join(top, path), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                match = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
                if match is None or match.group(1) not in known:
                    continue
                target = unit_of(match.group(1))
                if target != unit_of(path):
                    graph[unit_of(path)].setdefault(target, f"{path}:{number}")
    return graph


def circles(graph):
    """Groups of two or more units that include each other, directly or indirectly (Tarjan)."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []

    def visit(unit):
        index[unit] = low[unit] = len(index)
        stack.append(unit)
        on_stack.add(unit)
        for target in graph[unit]:
            if target not in index:
                visit(target)
                low[unit] = min(low[unit], low[target])
            elif target in on_stack:
                low[unit] = min(low[unit], index[target])
        if low[unit] == index[unit]:
            group = []
            while not group or group[-1] != unit:
                group.append(stack.pop())
                on_stack.discard(group[-1])
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10000)
    for unit in graph:
        if unit not in index:
            visit(unit)
    return sorted(found)


def arrows(graph):
    """{directory: {included directory: "file:line"}}."""
    found = collections.defaultdict(dict)
    for unit, targets in graph.items():
        found[room_of(unit)]
        for target, where in targets.items():
            if room_of(target) != room_of(unit):
                found[room_of(unit)].setdefault(room_of(target), where)
    return found


def breaches(graph):
    """Violations of the rules, as sentences."""
    found = []
    rank = {room: i for i, room in enumerate(ROOMS)}
    for room in sorted({room_of(unit) for unit in graph} - set(ROOMS)):
        found.append(f"{room}/ is not in ROOMS: give it a place in the order")
    for room in sorted(set(ROOMS) - {room_of(unit) for unit in graph}):
        found.append(f"{room}/ is in ROOMS and has no source")
    for unit, targets in sorted(graph.items()):
        for target, where in sorted(targets.items()):
            here, there = rank.get(room_of(unit)), rank.get(room_of(target))
            if here is not None and there is not None and there > here:
                found.append(f"{where}: {room_of(unit)}/ includes {target}.h, which is above it")
    for circle in circles(graph):
        if len(circle) > LARGEST_CIRCLE:
            found.append(f"a cycle of {len(circle)} units: {', '.join(circle)}")
        if len({room_of(unit) for unit in circle}) > 1:
            found.append(f"a cycle across directories: {', '.join(circle)}")
    return found


def main():
    top = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
    graph = read_graph(top)
    inclusions = arrows(graph)
    counts = collections.Counter(room_of(unit) for unit in graph)
    for room in [r for r in ROOMS if r in counts] + sorted(set(counts) - set(ROOMS)):
        below = sorted(inclusions[room], key=lambda r: ROOMS.index(r) if r in ROOMS else -1)
        print(f"{room} ({counts[room]} units) -> {', '.join(below) or 'nothing'}")
    for circle in circles(graph):
        print(f"cycle of {len(circle)}: {', '.join(circle)}")
    found = breaches(graph)
    for breach in found:
        print(f"VIOLATION {breach}")
    print(f"{len(graph)} units, {len(counts)} directories, {len(circles(graph))} cycles, "
          f"{len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
