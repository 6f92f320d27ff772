// Embedding keys of one request, grouped by hash bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace cairn {

// Keys that fall into one bucket: positions [begin, end) of KeyGroups' order.
struct KeyGroup {
  uint32_t bucket = 0;
  uint32_t begin = 0;
  uint32_t end = 0;

  int64_t size() const { return end - begin; }
};

// Reused from one request to the next, so that a thread allocates only for a larger one.
// Thread safety: none.
class KeyGroups {
 public:
  // Fewer than 2^32 keys; `bucket_count` as in BucketOfKey. Keys of a group keep their order.
  void Build(absl::Span<const int64_t> keys, uint32_t bucket_count);

  // Whether Build was called last with these arguments.
  bool AreOf(absl::Span<const int64_t> keys, uint32_t bucket_count) const;
  size_t memory_bytes() const;

  // The buckets that have keys, in increasing order.
  absl::Span<const KeyGroup> groups() const { return groups_; }
  // The keys of a group, and the position of each in the request.
  absl::Span<const int64_t> keys(const KeyGroup& group) const {
    return absl::MakeConstSpan(keys_).subspan(group.begin, group.end - group.begin);
  }
  absl::Span<const uint32_t> positions(const KeyGroup& group) const {
    return absl::MakeConstSpan(positions_).subspan(group.begin, group.end - group.begin);
  }
  // Groups are adjacent, so the keys of several consecutive groups are contiguous too.
  absl::Span<const int64_t> keys() const { return keys_; }
  int64_t key(uint32_t at) const { return keys_[at]; }
  uint32_t position(uint32_t at) const { return positions_[at]; }
  size_t key_count() const { return keys_.size(); }

 private:
  void CountingSort(absl::Span<const int64_t> keys, uint32_t bucket_count);
  void ComparisonSort(absl::Span<const int64_t> keys, uint32_t bucket_count);

  uint32_t bucket_count_ = 0;
  std::vector<KeyGroup> groups_;
  std::vector<int64_t> keys_;
  std::vector<uint32_t> positions_;
  std::vector<uint16_t> buckets_;  // of each key in the request's order
  std::vector<uint32_t> next_;     // by bucket
  std::vector<uint64_t> tagged_;   // bucket << 32 | position
};

}  // namespace cairn
