// Keys that were pushed and have no row yet (ROW_RULES.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "storage/stripe_store.h"

namespace cairn {

// Counts how often each key of a stripe was pushed, in a table of bounded size. A key is identified
// by 24 bits of its hash: if two keys share these bits, the first gets its row after the pushes of
// both, and the other starts again from zero. Entries are kept in sets of 16, most recently pushed
// key first. A full set doubles the table; at the size limit it forgets its least recently pushed
// key instead. An entry has 4 bytes: 24 bits of hash and a count. Thread safety: none.
class WaitingKeys {
 public:
  static constexpr size_t kPageBytes = 512;
  static constexpr size_t kMaxBytes = 256 << 10;  // 65,536 keys

  // Counts a push of `key`. True: this is the key's push number `pushes` (2 … 255), and the key
  // stops waiting.
  bool Admit(int64_t key, uint32_t pushes);
  // The key has a row now and stops waiting.
  void Forget(int64_t key);

  size_t bytes() const { return entries_.size() * sizeof(uint32_t); }
  // Puts the pages that have changed since they were last put.
  void Put(StripeBatch& batch);
  // Appends all pages, in the form and order that Load takes.
  void AppendTo(std::string* bytes) const;
  // Appends the next page, or all pages at once. `put`: the store that Put writes to has them
  // already. kDataLoss: `pages` are not whole pages, or exceed kMaxBytes.
  absl::Status Load(absl::string_view pages, bool put);
  // After the last Load. kDataLoss: pages are missing.
  absl::Status FinishLoad() const;
  // Forgets all keys.
  void Clear();

 private:
  static constexpr size_t kSetEntries = 16;
  static constexpr size_t kPageEntries = kPageBytes / sizeof(uint32_t);

  static uint32_t TagOf(int64_t key);
  uint32_t* SetOf(uint32_t tag);
  // The entry of `tag` in its set, or nullptr.
  uint32_t* Find(uint32_t tag);
  void Erase(uint32_t* entry);
  void Double();
  void MarkChanged(const uint32_t* entry);

  std::vector<uint32_t> entries_;  // a power of two of pages, or empty; entry 0: free
  std::vector<bool> changed_;      // by page
};

}  // namespace cairn
