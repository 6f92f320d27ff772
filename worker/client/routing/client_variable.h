// What the client keeps of a variable: where its rows live, worked out once for every later call.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/hash.h"
#include "common/variables/variable_spec.h"

namespace cairn {

// A group is the unit that rows are sorted into and that one wire item names: a shard of a dense
// variable, the buckets of one server of an embedding table.
struct ClientVariableGroup {
  int32_t server = 0;
  int32_t shard = 0;      // wire's shard number; embeddings: 0
  int64_t first_row = 0;  // dense
  int64_t rows = 0;       // dense
};

// Immutable after Make but for the versions. Thread safety: may be shared by threads.
class ClientVariable {
 public:
  // `spec` is valid and placed. `before`: the same by the map that this client knew before; null:
  // it knew none.
  explicit ClientVariable(VariableSpec spec, const ClientVariable* before = nullptr);

  const VariableSpec& spec() const { return spec_; }
  bool embedding() const { return spec_.kind == VariableKind::kEmbedding; }
  int64_t rows() const { return rows_; }  // dense
  size_t row_bytes() const { return row_bytes_; }
  absl::Span<const ClientVariableGroup> groups() const { return groups_; }

  // Servers that have rows of this table, and perhaps had none at some time since the map with
  // `map_version`: they had none by one that this client knew, or it does not know all in between.
  std::vector<int32_t> NewcomersSince(int64_t map_version) const;

  // Group of an embedding key.
  uint32_t GroupOfKey(int64_t key) const {
    return bucket_group_[BucketOfKey(key, static_cast<uint32_t>(bucket_group_.size()))];
  }
  // Group of a dense row in [0, rows()).
  uint32_t GroupOfRow(int64_t row) const;

  // Version of the shard that this client's last pull saw; -1: none. Pushes name it, so that the
  // server can tell their staleness.
  int64_t pulled_version(size_t group) const {
    return versions_[group].load(std::memory_order_relaxed);
  }
  void set_pulled_version(size_t group, int64_t version) const {
    versions_[group].store(version, std::memory_order_relaxed);
  }

 private:
  void NoteSince(const ClientVariable* before);

  const VariableSpec spec_;
  int64_t rows_ = 0;
  size_t row_bytes_ = 0;
  std::vector<ClientVariableGroup> groups_;
  std::vector<int64_t> there_since_;  // a map version each: groups of a table
  std::vector<uint16_t> bucket_group_;
  std::unique_ptr<std::atomic<int64_t>[]> versions_;
};

// A variable by one map. A call keeps the one that it began with; the last user frees it.
using ClientVariablePtr = std::shared_ptr<const ClientVariable>;

// Variables by name. Thread safety: every method may be called from several threads at once.
class ClientVariableMap {
 public:
  // nullptr: none of that name.
  ClientVariablePtr Find(absl::string_view name) const;
  // Keeps the one that is there if its spec is equal, or the same by a newer map.
  ClientVariablePtr Insert(VariableSpec spec);
  void Clear();

 private:
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, ClientVariablePtr> by_name_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
