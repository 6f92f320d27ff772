// Records which version of a variable a caller's memory holds, so that the next pull transfers only
// the rows that changed since (PullTarget::held).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/value_format.h"

namespace cairn {

// The caller keeps it beside the memory that it describes; it is empty before the first pull, and
// only the client changes it. It forgets shards that moved, shards of restarted servers, and shards
// that a failed pull left incomplete; the next pull transfers those as a whole.
// Thread safety: like the memory, used by one pull at a time.
class HeldValues {
 public:
  // Forgets everything. Call it after writing to the memory.
  void Clear() { shards_.clear(); }

 private:
  friend class DataPlan;

  // HeldCopy in thrift/cairn.thrift. boot_id 0: the shard is not held.
  struct Shard {
    int64_t boot_id = 0;
    int64_t mark = 0;
  };
  // Begins a pull to `out`. Forgets everything if the memory, the format or the number of shards
  // differs from the last pull.
  void Begin(const std::byte* out, size_t shards, ValueFormat format) {
    if (out != out_ || format != format_ || shards_.size() != shards) shards_.clear();
    out_ = out;
    format_ = format;
    shards_.resize(shards);
  }

  const std::byte* out_ = nullptr;
  ValueFormat format_ = ValueFormat::kPlain;
  std::vector<Shard> shards_;
};

}  // namespace cairn
