// The memory that this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace cairn {

// Bytes of physical memory of the machine, or of the lowest memory limit among the control groups
// that contain this process (of a container, a systemd unit or a batch job), if that is less. Reads
// a few files of /proc and /sys. Thread safety: any thread.
int64_t MemoryLimitBytes();

// The lowest memory limit of the control groups that `membership`, the contents of a file such as
// /proc/self/cgroup, names below `root`, a directory such as /sys/fs/cgroup. Knows versions 1 and 2
// of control groups. INT64_MAX: none has a limit, or none can be read, as in a container whose
// /sys/fs/cgroup shows other groups than the file.
int64_t ControlGroupLimitBytes(const std::string& membership, const std::string& root);

}  // namespace cairn
