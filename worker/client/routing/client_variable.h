// A client's view of a variable: its spec and the placement of its rows, precomputed for routing.
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
// variable, or the buckets of an embedding table that are on one server.
struct ClientVariableGroup {
  int32_t server = 0;
  int32_t shard = 0;      // wire's shard number; embeddings: 0
  int64_t first_row = 0;  // dense
  int64_t rows = 0;       // dense
};

// Immutable, except for the pulled versions. Thread safety: may be shared by threads.
class ClientVariable {
 public:
  // `spec` is valid and placed. `before`: the variable with the client's previous map; null: none.
  explicit ClientVariable(VariableSpec spec, const ClientVariable* before = nullptr);

  const VariableSpec& spec() const { return spec_; }
  bool embedding() const { return spec_.kind == VariableKind::kEmbedding; }
  int64_t rows() const { return rows_; }  // dense
  size_t row_bytes() const { return row_bytes_; }
  absl::Span<const ClientVariableGroup> groups() const { return groups_; }

  // Servers that have rows of this table and may have had none at some time since the map with
  // `map_version`: a map that this client knew gives them none, or the client does not know all
  // maps in between.
  std::vector<int32_t> NewcomersSince(int64_t map_version) const;

  // The index in groups() of the group that holds an embedding key.
  uint32_t GroupOfKey(int64_t key) const {
    return bucket_group_[BucketOfKey(key, static_cast<uint32_t>(bucket_group_.size()))];
  }
  // Group of a dense row in [0, rows()).
  uint32_t GroupOfRow(int64_t row) const;

  // The shard's version at this client's last pull; -1: none. Pushes name it, so that the server
  // can compute their staleness.
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
  // by group of a table: map version since which its server is known to have rows
  std::vector<int64_t> there_since_;
  std::vector<uint16_t> bucket_group_;
  std::unique_ptr<std::atomic<int64_t>[]> versions_;
};

// A variable with one version of its map. A call keeps its version until it ends; the last user
// frees it.
using ClientVariablePtr = std::shared_ptr<const ClientVariable>;

// Variables by name. Thread safety: every method may be called from several threads at once.
class ClientVariableMap {
 public:
  // nullptr: no variable of that name.
  ClientVariablePtr Find(absl::string_view name) const;
  // Inserts the variable. Keeps the existing one if its spec is equal, or differs only by a newer
  // map.
  ClientVariablePtr Insert(VariableSpec spec);
  // Replaces all variables, also those with newer maps.
  void Replace(absl::Span<const VariableSpec> specs);
  void Clear();

 private:
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, ClientVariablePtr> by_name_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
