#include "ps_server/rows/waiting_keys.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/errors.h"
#include "common/hash.h"

namespace cairn {
namespace {

constexpr uint32_t kTagBits = 24;
constexpr uint32_t kTagMask = (1u << kTagBits) - 1;

uint32_t TagIn(uint32_t entry) { return entry & kTagMask; }
uint32_t PushesIn(uint32_t entry) { return entry >> kTagBits; }

}  // namespace

// Uses the bits that BucketOfKey does not: the others are equal for all keys of a stripe.
uint32_t WaitingKeys::TagOf(int64_t key) {
  return static_cast<uint32_t>(MixBits(static_cast<uint64_t>(key))) & kTagMask;
}

uint32_t* WaitingKeys::SetOf(uint32_t tag) {
  const size_t sets = entries_.size() / kSetEntries;
  return &entries_[(tag & (sets - 1)) * kSetEntries];
}

uint32_t* WaitingKeys::Find(uint32_t tag) {
  if (entries_.empty()) return nullptr;
  uint32_t* const set = SetOf(tag);
  uint32_t* const end = set + kSetEntries;
  uint32_t* const found =
      std::find_if(set, end, [tag](uint32_t entry) { return entry != 0 && TagIn(entry) == tag; });
  return found == end ? nullptr : found;
}

void WaitingKeys::MarkChanged(const uint32_t* entry) {
  changed_[static_cast<size_t>(entry - entries_.data()) / kPageEntries] = true;
}

// The entries after it move up.
void WaitingKeys::Erase(uint32_t* entry) {
  MarkChanged(entry);
  uint32_t* const set = SetOf(TagIn(*entry));
  std::copy(entry + 1, set + kSetEntries, entry);
  set[kSetEntries - 1] = 0;
}

bool WaitingKeys::Admit(int64_t key, uint32_t pushes) {
  const uint32_t tag = TagOf(key);
  uint32_t before = 0;
  if (uint32_t* const entry = Find(tag); entry != nullptr) {
    before = PushesIn(*entry);
    Erase(entry);
  }
  if (before + 1 >= pushes) return true;
  if (entries_.empty()) {
    changed_.reserve(1);
    entries_.resize(kPageEntries);
    changed_.assign(1, true);
  }
  while (SetOf(tag)[kSetEntries - 1] != 0 && bytes() < kMaxBytes) Double();
  uint32_t* const set = SetOf(tag);
  std::copy_backward(set, set + kSetEntries - 1, set + kSetEntries);
  set[0] = (before + 1) << kTagBits | tag;
  MarkChanged(set);
  return false;
}

void WaitingKeys::Forget(int64_t key) {
  if (uint32_t* const entry = Find(TagOf(key)); entry != nullptr) Erase(entry);
}

// Some of each set's entries move to the new set whose number differs by the next bit.
void WaitingKeys::Double() {
  const size_t before = entries_.size();
  changed_.reserve(2 * changed_.size());  // before any change: the allocation may fail
  entries_.resize(2 * before);
  for (size_t set = 0; set < before; set += kSetEntries) {
    size_t kept = set;
    size_t moved = before + set;
    for (size_t i = set; i < set + kSetEntries; ++i) {
      const uint32_t entry = entries_[i];
      const bool moves = (TagIn(entry) & (before / kSetEntries)) != 0;
      entries_[moves ? moved++ : kept++] = entry;
    }
    std::fill(entries_.begin() + static_cast<ptrdiff_t>(kept),
              entries_.begin() + static_cast<ptrdiff_t>(set + kSetEntries), 0);
  }
  changed_.assign(2 * changed_.size(), true);
}

void WaitingKeys::Put(StripeBatch& batch) {
  static_assert(std::endian::native == std::endian::little, "entries are kept as they are on disk");
  for (size_t page = 0; page < changed_.size(); ++page) {
    if (!changed_[page]) continue;
    changed_[page] = false;
    const auto* const bytes = reinterpret_cast<const char*>(&entries_[page * kPageEntries]);
    batch.PutWaiting(static_cast<uint32_t>(page), {bytes, kPageBytes});
  }
}

void WaitingKeys::AppendTo(std::string* bytes) const {
  bytes->append(reinterpret_cast<const char*>(entries_.data()), this->bytes());
}

absl::Status WaitingKeys::Load(absl::string_view pages, bool put) {
  if (pages.size() % kPageBytes != 0 || bytes() + pages.size() > kMaxBytes) {
    return DataLoss("waiting keys have ", pages.size(), " bytes after ", bytes(),
                    "; they have pages of ", kPageBytes, " bytes, at most ", kMaxBytes, " in all");
  }
  const size_t before = entries_.size();
  const size_t after = before + pages.size() / sizeof(uint32_t);
  changed_.reserve(after / kPageEntries);
  entries_.resize(after);
  if (!pages.empty()) std::memcpy(&entries_[before], pages.data(), pages.size());
  changed_.resize(entries_.size() / kPageEntries, !put);
  return absl::OkStatus();
}

absl::Status WaitingKeys::FinishLoad() const {
  if (entries_.empty() || std::has_single_bit(entries_.size())) return absl::OkStatus();
  return DataLoss("waiting keys have ", changed_.size(), " pages, which is no power of two");
}

void WaitingKeys::Clear() {
  entries_.clear();
  changed_.clear();
}

}  // namespace cairn
