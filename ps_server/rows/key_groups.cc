#include "ps_server/rows/key_groups.h"

#include <algorithm>

#include "common/hash.h"

namespace cairn {

void KeyGroups::Build(absl::Span<const int64_t> keys, uint32_t bucket_count) {
  bucket_count_ = 0;  // in case an allocation throws
  groups_.clear();
  keys_.resize(keys.size());
  positions_.resize(keys.size());
  // Counting visits every bucket; for few keys sorting is cheaper.
  if (keys.size() * 8 < bucket_count) {
    ComparisonSort(keys, bucket_count);
  } else {
    CountingSort(keys, bucket_count);
  }
  bucket_count_ = bucket_count;
}

bool KeyGroups::AreOf(absl::Span<const int64_t> keys, uint32_t bucket_count) const {
  if (bucket_count != bucket_count_ || keys.size() != keys_.size()) return false;
  // The positions are a permutation, so every key is compared.
  for (size_t at = 0; at < keys_.size(); ++at) {
    if (keys_[at] != keys[positions_[at]]) return false;
  }
  return true;
}

size_t KeyGroups::memory_bytes() const {
  return groups_.capacity() * sizeof(KeyGroup) + keys_.capacity() * sizeof(int64_t) +
         (positions_.capacity() + next_.capacity()) * sizeof(uint32_t) +
         buckets_.capacity() * sizeof(uint16_t) + tagged_.capacity() * sizeof(uint64_t);
}

void KeyGroups::CountingSort(absl::Span<const int64_t> keys, uint32_t bucket_count) {
  buckets_.resize(keys.size());
  next_.assign(bucket_count, 0);
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint32_t bucket = BucketOfKey(keys[i], bucket_count);
    buckets_[i] = static_cast<uint16_t>(bucket);
    ++next_[bucket];
  }
  uint32_t begin = 0;
  for (uint32_t bucket = 0; bucket < bucket_count; ++bucket) {
    const uint32_t count = next_[bucket];
    next_[bucket] = begin;
    if (count == 0) continue;
    groups_.push_back({.bucket = bucket, .begin = begin, .end = begin + count});
    begin += count;
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint32_t at = next_[buckets_[i]]++;
    keys_[at] = keys[i];
    positions_[at] = static_cast<uint32_t>(i);
  }
}

void KeyGroups::ComparisonSort(absl::Span<const int64_t> keys, uint32_t bucket_count) {
  tagged_.resize(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    tagged_[i] = uint64_t{BucketOfKey(keys[i], bucket_count)} << 32 | i;
  }
  std::ranges::sort(tagged_);
  for (size_t at = 0; at < tagged_.size(); ++at) {
    const uint32_t bucket = static_cast<uint32_t>(tagged_[at] >> 32);
    positions_[at] = static_cast<uint32_t>(tagged_[at]);
    keys_[at] = keys[positions_[at]];
    if (groups_.empty() || groups_.back().bucket != bucket) {
      groups_.push_back({.bucket = bucket, .begin = static_cast<uint32_t>(at)});
    }
    groups_.back().end = static_cast<uint32_t>(at) + 1;
  }
}

}  // namespace cairn
