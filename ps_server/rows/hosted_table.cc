#include "ps_server/rows/hosted_table.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/crash_point.h"

namespace cairn {
namespace {

// Stripes that are locked together so that their lookups overlap. Locks are taken in bucket order.
constexpr size_t kWindowStripes = 16;
// Chunks of rows moved under one lock, about 256 KiB; then a pause before the next.
constexpr size_t kMovedChunks = 16;
constexpr absl::Duration kMovePause = absl::Microseconds(50);
// Keys looked up together: their rows stay in the first-level cache until they are used.
constexpr uint32_t kFlightKeys = 64;

// Prefetches the data that a visit of a stripe reads first.
void PrefetchStripe(const EmbeddingStripe& stripe) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&stripe);
  for (size_t at = 0; at < sizeof(stripe); at += 64) __builtin_prefetch(bytes + at, 1);
}

}  // namespace

HostedTable::HostedTable(uint32_t variable, TableLayout layout, absl::Span<const int32_t> bucket_ps,
                         int32_t server_index)
    : HostedShard(0),
      core_([&] {
        layout.row = RowLayout(layout.dim, layout.slot_initial.size(), layout.storage);
        const size_t chunk_bytes = RowTable::ChunkBytes(layout.row.bytes());
        return std::make_shared<Core>(std::move(layout), chunk_bytes);
      }()),
      stripes_(bucket_ps.size()) {
  for (size_t bucket = 0; bucket < bucket_ps.size(); ++bucket) {
    if (bucket_ps[bucket] != server_index) continue;
    const StripeId id{.variable = variable, .stripe = static_cast<uint32_t>(bucket)};
    stripes_[bucket] = std::make_shared<EmbeddingStripe>(id, core_->layout, core_->pool);
    ++local_buckets_;
  }
}

HostedTable::HostedTable(const HostedTable& before, absl::Span<const int32_t> bucket_ps,
                         int32_t server_index, const HostedTable* arriving, int64_t* leaving_bytes)
    : HostedShard(before),
      core_(before.core_),
      arrived_(before.arrived_),
      stripes_(before.stripes_.size()) {
  if (arriving != nullptr) arrived_.push_back(arriving->core_);
  int64_t rows = 0, cold = 0, waiting = 0, stripes = 0;
  for (size_t bucket = 0; bucket < stripes_.size(); ++bucket) {
    const std::shared_ptr<EmbeddingStripe>& here = before.stripes_[bucket];
    if (here == nullptr || bucket_ps[bucket] == server_index) continue;
    // From now on, pulls do not load cold rows into this stripe's memory.
    absl::MutexLock lock(&here->mutex());
    here->HandOver();
    ++stripes;
    rows += here->row_count();
    cold += here->cold_rows();
    waiting += static_cast<int64_t>(here->waiting_bytes());
  }
  CountRows(-rows, -cold);
  CountWaiting(-waiting);
  *leaving_bytes = rows * layout().row_charge() + waiting +
                   stripes * static_cast<int64_t>(sizeof(EmbeddingStripe));
  rows = cold = waiting = 0;
  for (size_t bucket = 0; bucket < stripes_.size(); ++bucket) {
    const std::shared_ptr<EmbeddingStripe>& here = before.stripes_[bucket];
    if (bucket_ps[bucket] != server_index) continue;
    stripes_[bucket] = here != nullptr || arriving == nullptr ? here : arriving->stripes_[bucket];
    if (stripes_[bucket] == nullptr) continue;
    ++local_buckets_;
    if (here != nullptr) continue;
    rows += stripes_[bucket]->row_count();
    cold += stripes_[bucket]->cold_rows();
    waiting += static_cast<int64_t>(stripes_[bucket]->waiting_bytes());
  }
  // Buckets that arrived earlier may have left since.
  std::erase_if(arrived_, [&](const std::shared_ptr<Core>& core) {
    return std::ranges::none_of(stripes_, [&](const auto& stripe) {
      return stripe != nullptr && &stripe->layout() == &core->layout;
    });
  });
  CountRows(rows, cold);
  CountWaiting(waiting);
}

int64_t HostedTable::FixedBytes(size_t buckets, int64_t local_buckets) {
  return static_cast<int64_t>(buckets * sizeof(void*)) +
         local_buckets * static_cast<int64_t>(sizeof(EmbeddingStripe));
}

std::vector<int64_t> HostedTable::uses() const {
  std::vector<int64_t> uses(stripes_.size());
  for (size_t bucket = 0; bucket < stripes_.size(); ++bucket) {
    if (stripes_[bucket] != nullptr) uses[bucket] = stripes_[bucket]->uses();
  }
  return uses;
}

std::vector<ChunkPool*> HostedTable::pools() const {
  std::vector<ChunkPool*> pools = {&core_->pool};
  for (const auto& core : arrived_) pools.push_back(&core->pool);
  return pools;
}

int64_t HostedTable::idle_bytes() const {
  size_t bytes = 0;
  for (const ChunkPool* pool : pools()) bytes += pool->idle_bytes();
  return static_cast<int64_t>(bytes);
}

int64_t HostedTable::ReturnIdle(int64_t bytes) {
  int64_t returned = 0;
  for (ChunkPool* const pool : pools()) {
    while (returned < bytes) {
      const int64_t block = ReturnBlock(*pool);
      if (block == 0) break;
      returned += block;
    }
  }
  return returned;
}

int64_t HostedTable::ReturnBlock(ChunkPool& pool) {
  const std::optional<ChunkPool::Vacated> vacated = pool.BeginVacating();
  if (!vacated.has_value()) return 0;
  for (const auto& stripe : stripes_) {
    for (bool more = stripe != nullptr; more;) {
      {
        absl::MutexLock lock(&stripe->mutex());
        more = stripe->MoveChunks(*vacated, kMovedChunks);
      }
      if (more) absl::SleepFor(kMovePause);
    }
  }
  return static_cast<int64_t>(pool.EndVacating());
}

// The locked stripes of some groups.
class HostedTable::Window {
 public:
  Window(const HostedTable& table, absl::Span<const KeyGroup> groups,
         bool shared) ABSL_NO_THREAD_SAFETY_ANALYSIS : groups_(groups),
                                                       shared_(shared) {
    for (size_t g = 0; g < groups.size(); ++g) {
      stripes_[g] = table.stripes_[groups[g].bucket].get();
      PrefetchStripe(*stripes_[g]);
    }
    for (size_t g = 0; g < groups.size(); ++g) {
      if (shared) {
        stripes_[g]->mutex().ReaderLock();
      } else {
        stripes_[g]->mutex().Lock();
      }
    }
  }
  ~Window() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (size_t g = groups_.size(); g-- > 0;) {
      if (shared_) {
        stripes_[g]->mutex().ReaderUnlock();
      } else {
        stripes_[g]->mutex().Unlock();
      }
    }
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  size_t size() const { return groups_.size(); }
  const KeyGroup& group(size_t g) const { return groups_[g]; }
  EmbeddingStripe& stripe(size_t g) const { return *stripes_[g]; }
  // The window's keys are [begin, end) of the request's grouped keys.
  uint32_t begin() const { return groups_.front().begin; }
  uint32_t end() const { return groups_.back().end; }

  // Calls visit(g, at, row) for each key: `at` is its position, g its group, `row` its row or
  // RowTable::kNone. `likely`: by `at`, as in RowTable::FindAgain; may be null.
  template <typename Visit>
  void ForEachKey(const KeyGroups& groups, const uint32_t* likely, Visit visit) const {
    RowTable::Query queries[kFlightKeys];
    uint32_t owner[kFlightKeys];
    uint32_t rows[kFlightKeys];
    size_t g = 0;
    for (uint32_t base = begin(); base < end(); base += kFlightKeys) {
      const uint32_t n = std::min(kFlightKeys, end() - base);
      for (uint32_t i = 0; i < n; ++i) {
        if (base + i == groups_[g].end) ++g;
        owner[i] = static_cast<uint32_t>(g);
        queries[i] = {.table = &stripes_[g]->table(), .key = groups.key(base + i)};
      }
      if (likely != nullptr) {
        RowTable::FindAgain(absl::MakeConstSpan(queries, n), likely + base, rows);
      } else {
        RowTable::Find(absl::MakeConstSpan(queries, n), rows);
      }
      for (uint32_t i = 0; i < n; ++i) visit(owner[i], base + i, rows[i]);
    }
  }

 private:
  const absl::Span<const KeyGroup> groups_;
  const bool shared_;
  std::array<EmbeddingStripe*, kWindowStripes> stripes_{};
};

template <typename Visit, typename After>
void HostedTable::ForEachWindow(const HostedTable& table, absl::Span<const KeyGroup> all,
                                bool shared, Visit visit, After after) {
  for (size_t first = 0; first < all.size();) {
    size_t last = first + 1;
    while (last < all.size() && last - first < kWindowStripes &&
           all[last].end - all[first].begin <= kFlightKeys) {
      ++last;
    }
    const absl::Span<const KeyGroup> some = all.subspan(first, last - first);
    bool result = false;
    {
      const Window window(table, some, shared);
      result = visit(window);
    }
    const Next next = after(some, result);
    if (next == Next::kNone) return;
    if (next == Next::kWindow) first = last;
  }
}

template <typename Visit>
void HostedTable::Read(absl::Span<const KeyGroup> groups, Missing missing, Visit visit) const {
  std::vector<uint32_t> at;
  const auto look = [&](const Window& window) {
    visit(window, at);
    return !at.empty();
  };
  const auto tell = [&](absl::Span<const KeyGroup>, bool any) {
    if (any) missing(at);
    at.clear();
    return Next::kWindow;
  };
  ForEachWindow(*this, groups, /*shared=*/true, look, tell);
}

template <typename Visit>
void HostedTable::Update(absl::Span<const KeyGroup> groups, RowResolver& resolver,
                         Visit visit) const {
  const auto bring = [&](absl::Span<const KeyGroup> some, bool done) {
    if (done) return Next::kWindow;
    return resolver.Fetch(some) ? Next::kSameAgain : Next::kNone;
  };
  ForEachWindow(*this, groups, /*shared=*/false, visit, bring);
}

bool HostedTable::AllHere(const KeyGroups& groups, const Window& window,
                          const RowResolver& resolver) const {
  for (size_t g = 0; g < window.size(); ++g) {
    if (window.stripe(g).cold_rows() == 0) continue;
    const auto group = static_cast<size_t>(&window.group(g) - groups.groups().data());
    if (!resolver.located() || resolver.departures[group] != window.stripe(g).departures()) {
      return false;
    }
  }
  return true;
}

int64_t HostedTable::CountAbsent(const KeyGroups& groups) const {
  int64_t absent = 0;
  const auto count = [&](const Window& window, std::vector<uint32_t>&) {
    window.ForEachKey(groups, nullptr, [&](size_t, uint32_t, uint32_t row) {
      if (row == RowTable::kNone) ++absent;
    });
  };
  const auto none = [](absl::Span<const uint32_t>) {};
  Read(groups.groups(), none, count);
  return absent;
}

int64_t HostedTable::Locate(const KeyGroups& all, absl::Span<const KeyGroup> groups,
                            RowResolver& resolver, Missing missing) const {
  resolver.rows.resize(all.key_count());
  resolver.departures.resize(all.groups().size());
  int64_t absent = 0;
  const auto locate = [&](const Window& window, std::vector<uint32_t>& missing_here) {
    const auto first = static_cast<size_t>(&window.group(0) - all.groups().data());
    for (size_t g = 0; g < window.size(); ++g) {
      resolver.departures[first + g] = window.stripe(g).departures();
    }
    window.ForEachKey(all, nullptr, [&](size_t g, uint32_t at, uint32_t row) {
      resolver.rows[at] = row;
      if (row != RowTable::kNone) return;
      ++absent;
      if (window.stripe(g).cold_rows() > 0) missing_here.push_back(at);
    });
  };
  Read(groups, missing, locate);
  return absent;
}

void HostedTable::Admit(const Window& window, const KeyGroups& groups, TableScratch& scratch,
                        absl::Span<bool> repeats, Changed& changed) {
  std::vector<TableScratch::Absent>& absent = scratch.absent;
  // A key that the push repeats counts once.
  std::ranges::sort(absent, [&](const auto& a, const auto& b) {
    if (a.group != b.group) return a.group < b.group;
    const int64_t a_key = groups.key(a.at), b_key = groups.key(b.at);
    return a_key != b_key ? a_key < b_key : a.at < b.at;
  });
  for (size_t first = 0; first < absent.size();) {
    const uint32_t g = absent[first].group;
    const int64_t key = groups.key(absent[first].at);
    size_t last = first + 1;
    while (last < absent.size() && absent[last].group == g && groups.key(absent[last].at) == key) {
      ++last;
    }
    EmbeddingStripe& stripe = window.stripe(g);
    // The row may have been created since the lookup.
    uint32_t row = stripe.table().FindOne(key);
    const auto bytes = static_cast<int64_t>(stripe.waiting_bytes());
    if (row == RowTable::kNone && !stripe.Admit(key)) {
      changed.not_admitted += static_cast<int64_t>(last - first);
      changed.waiting_bytes += static_cast<int64_t>(stripe.waiting_bytes()) - bytes;
      first = last;
      continue;
    }
    for (; first < last; ++first) {
      repeats[g] |= stripe.Take(key, row, changed.made);
      scratch.rows[absent[first].at - window.begin()] = row;
    }
  }
}

void HostedTable::Push(const UpdateStep& step, const Origin& origin, const KeyGroups& groups,
                       const float* gradients, const uint32_t* likely, TableScratch& scratch,
                       RowResolver& resolver, Changed& changed) {
  const absl::Cleanup counted = [&] {
    if (changed.made != 0) CountRows(changed.made, 0);
    if (changed.not_admitted != 0) {
      core_->counts.Add("not_admitted", changed.not_admitted);
    }
    if (changed.waiting_bytes != 0) CountWaiting(changed.waiting_bytes);
  };
  const auto push = [&](const Window& window) {
    if (!AllHere(groups, window, resolver)) return false;
    const uint32_t* const hints = resolver.located() ? resolver.rows.data() : likely;
    std::array<bool, kWindowStripes> wanted{};
    std::array<bool, kWindowStripes> repeats{};
    for (size_t g = 0; g < window.size(); ++g) {
      wanted[g] = !window.stripe(g).Has(origin);
      if (!wanted[g]) continue;
      window.stripe(g).ReserveTouch();
      window.stripe(g).BeginPush();
    }
    scratch.rows.resize(window.end() - window.begin());
    scratch.absent.clear();
    window.ForEachKey(groups, hints, [&](size_t g, uint32_t at, uint32_t row) {
      if (!wanted[g]) return;
      if (row == RowTable::kNone && some_wait()) {
        scratch.absent.push_back({.group = static_cast<uint32_t>(g), .at = at});
      } else {
        repeats[g] |= window.stripe(g).Take(groups.key(at), row, changed.made);
      }
      scratch.rows[at - window.begin()] = row;
    });
    if (!scratch.absent.empty()) {
      Admit(window, groups, scratch, absl::MakeSpan(repeats), changed);
    }
    const bool any_repeats = std::ranges::find(repeats, true) != repeats.end();
    RowUpdate update(step, layout(), scratch.rows.size(), any_repeats, scratch);
    // From here on, nothing may fail: an update without its watermark would be applied again.
    for (size_t g = 0; g < window.size(); ++g) {
      if (!wanted[g]) continue;
      const KeyGroup& group = window.group(g);
      const auto rows = absl::MakeConstSpan(scratch.rows)
                            .subspan(group.begin - window.begin(), group.end - group.begin);
      window.stripe(g).AddTo(update, origin, rows, groups.positions(group), repeats[g], gradients);
    }
    update.End();
    for (size_t g = 0; g < window.size(); ++g) {
      if (!wanted[g]) continue;
      window.stripe(g).Touch(origin, dirty());
      window.stripe(g).CountUses(window.group(g).size());
      CAIRN_CRASH_POINT("push: between buckets");
      changed.any = true;
    }
    return true;
  };
  Update(groups.groups(), resolver, push);
  if (!resolver.located()) {
    const int64_t absent = changed.made + changed.not_admitted;
    core_->counts.Add("found", static_cast<int64_t>(groups.key_count()) - absent);
    core_->counts.Add("absent", absent);
  }
}

void HostedTable::Pull(size_t part, const KeyGroups& groups, float* out, uint32_t* found,
                       Missing missing) const {
  int64_t nowhere = 0;
  int64_t unknown = 0;  // counted later, when their rows have been found
  const auto copy = [&](const Window& window, std::vector<uint32_t>& missing_here) {
    for (size_t g = 0; g < window.size(); ++g) {
      window.stripe(g).CountUses(window.group(g).size());
    }
    window.ForEachKey(groups, nullptr, [&](size_t g, uint32_t at, uint32_t row) {
      if (found != nullptr) found[at] = row;
      if (row == RowTable::kNone) {
        if (window.stripe(g).cold_rows() > 0) {
          ++unknown;
          missing_here.push_back(at);
          return;
        }
        ++nowhere;
      }
      window.stripe(g).CopyRow(part, groups.key(at), row, out + groups.position(at) * layout().dim);
    });
  };
  Read(groups.groups(), missing, copy);
  core_->counts.Add("found", static_cast<int64_t>(groups.key_count()) - nowhere - unknown);
  if (nowhere > 0) core_->counts.Add("absent", nowhere);
}

void HostedTable::Assign(size_t part, const Origin& origin, const KeyGroups& groups,
                         const float* values, std::vector<TouchedStripe>& touched,
                         RowResolver& resolver, int64_t& made) {
  const absl::Cleanup counted = [&] {
    if (made != 0) CountRows(made, 0);
  };
  const auto assign = [&](const Window& window) {
    if (!AllHere(groups, window, resolver)) return false;
    std::array<bool, kWindowStripes> wanted{};
    for (size_t g = 0; g < window.size(); ++g) {
      wanted[g] = !window.stripe(g).Has(origin);
      if (wanted[g]) window.stripe(g).BeginPush();
    }
    window.ForEachKey(groups, nullptr, [&](size_t g, uint32_t at, uint32_t row) {
      if (!wanted[g]) return;
      window.stripe(g).SetRow(part, groups.key(at), row,
                              values + groups.position(at) * layout().dim, made);
    });
    for (size_t g = 0; g < window.size(); ++g) {
      if (!wanted[g]) continue;
      window.stripe(g).Touch(Origin{}, dirty());
      touched.push_back({.stripe = &window.stripe(g), .dirty = &dirty()});
    }
    return true;
  };
  Update(groups.groups(), resolver, assign);
}

}  // namespace cairn
