// What a caller has in its memory of a variable from an earlier pull, so that the next one brings
// only what has changed since (PullTarget::held).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/value_format.h"

namespace cairn {

// Kept by the caller beside the memory that it is about, empty before the first pull; what is in it
// is the client's. Of a shard that has moved, of a server that was restarted, and of what a failed
// pull left half way it has nothing, and the next pull brings that whole.
// Thread safety: as the memory: one pull at a time.
class HeldValues {
 public:
  // Forgets all: to be called where the memory has been written to by others.
  void Clear() { shards_.clear(); }

 private:
  friend class DataPlan;

  // HeldCopy of the IDL. 0: nothing.
  struct Shard {
    int64_t boot_id = 0;
    int64_t mark = 0;
  };
  // Forgets what is of other memory, or came in another format.
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
