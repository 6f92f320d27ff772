#include "ps_server/rows/row_index.h"

#include <bit>
#include <cstring>
#include <new>
#include <utility>

namespace cairn {

RowIndex::Array RowIndex::OwnArray(size_t buckets) {
  void* const memory = ::operator new (buckets * sizeof(Bucket), std::align_val_t{sizeof(Bucket)});
  return {.buckets = static_cast<Bucket*>(memory), .count = buckets};
}

RowIndex::Array RowIndex::Allocate(size_t buckets) {
  Array array;
  const size_t bytes = buckets * sizeof(Bucket);
  if (bytes >= pool_.chunk_bytes()) {
    array.buckets = reinterpret_cast<Bucket*>(pool_.TakeRun(pool_.ChunksFor(bytes)));
    array.count = array.buckets == nullptr ? 0 : buckets;
    array.of_pool = true;
  }
  if (array.count == 0) array = OwnArray(buckets);
  std::memset(array.buckets, 0, bytes);
  return array;
}

void RowIndex::Free(Array& array) {
  if (array.of_pool) {
    auto* const chunk = reinterpret_cast<std::byte*>(array.buckets);
    const size_t chunks = pool_.ChunksFor(array.count * sizeof(Bucket));
    for (size_t i = 0; i < chunks; ++i) pool_.GiveBack(chunk + i * pool_.chunk_bytes());
  } else {
    ::operator delete (array.buckets, std::align_val_t{sizeof(Bucket)});
  }
  array = Array();
}

bool RowIndex::MoveOut(const ChunkPool::Vacated& from) {
  for (Array* const array : {&now_, &old_}) {
    if (!array->of_pool || !from.contains(reinterpret_cast<std::byte*>(array->buckets))) continue;
    try {
      Array moved = OwnArray(array->count);
      std::memcpy(moved.buckets, array->buckets, moved.count * sizeof(Bucket));
      std::swap(*array, moved);
      Free(moved);
      return true;
    } catch (const std::bad_alloc&) {  // the block will not become empty
    }
  }
  return false;
}

void RowIndex::Insert(Array& array, uint64_t hash, uint32_t row) {
  for (size_t at = array.Home(hash);; at = array.After(at)) {
    Bucket& bucket = array.buckets[at];
    const uint32_t free = bucket.Places(0);
    if (free != 0) {
      const int i = std::countr_zero(free);
      bucket.tags[i] = Tag(hash);
      bucket.rows[i] = row;
      return;
    }
    ++bucket.passed;
  }
}

RowIndex::Place RowIndex::PlaceOf(uint64_t hash, uint32_t row) {
  for (size_t at = now_.Home(hash);; at = now_.After(at)) {
    Bucket& bucket = now_.buckets[at];
    for (uint32_t places = bucket.Places(Tag(hash)); places != 0; places &= places - 1) {
      const auto i = static_cast<size_t>(std::countr_zero(places));
      if (bucket.rows[i] == row) return {.bucket = &bucket, .i = i};
    }
  }
}

void RowIndex::Erase(uint64_t hash, uint32_t row) {
  const Place place = PlaceOf(hash, row);
  place.bucket->tags[place.i] = 0;
  for (size_t at = now_.Home(hash); &now_.buckets[at] != place.bucket; at = now_.After(at)) {
    --now_.buckets[at].passed;
  }
}

}  // namespace cairn
