#include "ps_server/rows/stripe.h"

#include <algorithm>

#include "common/errors.h"

namespace cairn {
namespace {

bool ByWorker(const Watermark& mark, int32_t worker) { return mark.worker < worker; }

}  // namespace

bool Watermarks::Has(const Origin& origin) const {
  if (origin.worker < 0) return false;
  if (origin.applied && !exact()) return true;
  const auto mark = std::lower_bound(marks_.begin(), marks_.end(), origin.worker, ByWorker);
  return mark != marks_.end() && mark->worker == origin.worker && mark->sequence >= origin.sequence;
}

void Watermarks::Raise(const Origin& origin) {
  if (origin.worker < 0) return;
  const auto mark = std::lower_bound(marks_.begin(), marks_.end(), origin.worker, ByWorker);
  if (mark == marks_.end() || mark->worker != origin.worker) {
    marks_.insert(mark, Watermark{.worker = origin.worker, .sequence = origin.sequence});
  } else if (mark->sequence < origin.sequence) {
    mark->sequence = origin.sequence;
  }
}

void Watermarks::MakeExact() {
  if (!exact()) marks_.insert(marks_.begin(), Watermark{.worker = kExact});
}

void Watermarks::Forget(absl::Span<const Watermark> durable) {
  if (exact()) return;
  for (const Watermark& known : durable) {
    const auto mark = std::lower_bound(marks_.begin(), marks_.end(), known.worker, ByWorker);
    if (mark != marks_.end() && mark->worker == known.worker && mark->sequence <= known.sequence) {
      marks_.erase(mark);
    }
  }
}

void Watermarks::Reset(absl::Span<const Watermark> marks) {
  marks_.assign(marks.begin(), marks.end());
  std::ranges::sort(marks_,
                    [](const Watermark& a, const Watermark& b) { return a.worker < b.worker; });
}

void Stripe::TakeOver(absl::Span<const Watermark> marks) {
  watermarks_.Reset(marks);
  watermarks_.MakeExact();
}

void Stripe::Touch(const Origin& origin, DirtyList& dirty) {
  watermarks_.Raise(origin);
  ++changes_;
  if (dirty_) return;
  dirty_ = true;
  dirty.Add(this);
}

absl::Status Stripe::BeginBatch() {
  if (in_batch_) {
    return FailedPrecondition("stripe ", id_.stripe, " of shard ", id_.shard, " of variable ",
                              id_.variable,
                              ": an earlier write took changes out of it and failed, so a later "
                              "one would lack them");
  }
  in_batch_ = true;
  return absl::OkStatus();
}

bool Stripe::DrainAhead(StripeBatch&, size_t) { return false; }

void Stripe::Drain(StripeBatch& batch) {
  dirty_ = false;
  DrainEarly(batch);
}

void Stripe::DrainEarly(StripeBatch& batch) {
  batch.SetWatermarks(watermarks_.marks());
  DrainContent(batch);
}

void DirtyList::Add(Stripe* stripe) {
  count_.fetch_add(1, std::memory_order_relaxed);
  Stripe* head = head_.load(std::memory_order_relaxed);
  do {
    stripe->next_dirty_ = head;
  } while (!head_.compare_exchange_weak(head, stripe, std::memory_order_release,
                                        std::memory_order_relaxed));
}

void DirtyList::TakeInto(std::vector<Stripe*>& taken) {
  // Reads the links before any stripe is drained: a drained stripe may be queued again at once.
  for (Stripe* stripe = head_.exchange(nullptr, std::memory_order_acquire); stripe != nullptr;
       stripe = stripe->next_dirty_) {
    taken.push_back(stripe);
    count_.fetch_sub(1, std::memory_order_relaxed);
  }
}

void DirtyList::DropHandedOver() {
  for (Stripe* stripe = head_.exchange(nullptr, std::memory_order_acquire); stripe != nullptr;) {
    Stripe* const next = stripe->next_dirty_;  // read now, because Add overwrites it
    count_.fetch_sub(1, std::memory_order_relaxed);
    if (!stripe->handed_over()) Add(stripe);
    stripe = next;
  }
}

}  // namespace cairn
