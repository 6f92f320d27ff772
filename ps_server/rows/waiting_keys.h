// Which keys were pushed and have no row yet (ROW_RULES.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "storage/stripe_store.h"

namespace cairn {

// How often each key of a stripe was pushed, in a table of bounded size. A key is known by 24 bits
// of its hash: of two keys that have them in common the first gets its row with the pushes of both,
// and the other starts anew. Sets of 16 entries, the key pushed last first: one that is full
// doubles the table; at the bound it forgets the key that was not pushed for longest. Entries are 4
// bytes: 24 bits and a count. Thread safety: none.
class WaitingKeys {
 public:
  static constexpr size_t kPageBytes = 512;
  static constexpr size_t kMostBytes = 256 << 10;  // 65,536 keys

  // Counts a push of `key`. True: it is the `pushes`th, 2 … 255, and the key waits no more.
  bool Admit(int64_t key, uint32_t pushes);
  // The key has a row.
  void Forget(int64_t key);

  size_t bytes() const { return entries_.size() * sizeof(uint32_t); }
  // Puts the pages that have changed since they were put.
  void Put(StripeBatch& batch);
  // Appends all pages. What Load takes, one after the other.
  void AppendTo(std::string* bytes) const;
  // The next page, or all of them together. `put`: the store that Put is for has it.
  // kDataLoss: no pages, or more than there can be.
  absl::Status Load(absl::string_view pages, bool put);
  // After the last Load. kDataLoss: pages are missing.
  absl::Status FinishLoad() const;
  // Nothing waits.
  void Clear();

 private:
  static constexpr size_t kSetEntries = 16;
  static constexpr size_t kPageEntries = kPageBytes / sizeof(uint32_t);

  static uint32_t TagOf(int64_t key);
  uint32_t* SetOf(uint32_t tag);
  // The entry of `tag` in its set; nullptr: there is none.
  uint32_t* Find(uint32_t tag);
  void Erase(uint32_t* entry);
  void Double();
  void MarkChanged(const uint32_t* entry);

  std::vector<uint32_t> entries_;  // a power of two of pages, or none; 0: free
  std::vector<bool> changed_;      // by page
};

}  // namespace cairn
