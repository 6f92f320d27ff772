#include "ps_server/hosted_table.h"

#include <utility>

namespace cairn {
namespace {

KeyBatch KeysOf(const KeyGroups& groups, const KeyGroup& group) {
  return {.keys = groups.keys(group), .positions = groups.positions(group)};
}

}  // namespace

HostedTable::HostedTable(uint32_t variable, TableLayout layout, absl::Span<const int32_t> bucket_ps,
                         int32_t server_index)
    : HostedShard(0),
      layout_(std::move(layout)),
      pool_(RowTable::ChunkBytes(layout_.floats_per_row())),
      stripes_(bucket_ps.size()) {
  for (size_t bucket = 0; bucket < bucket_ps.size(); ++bucket) {
    if (bucket_ps[bucket] != server_index) continue;
    const StripeId id{.variable = variable, .stripe = static_cast<uint32_t>(bucket)};
    stripes_[bucket] = std::make_unique<EmbeddingStripe>(id, layout_, pool_);
    ++local_buckets_;
  }
}

int64_t HostedTable::FixedBytes(size_t buckets, int64_t local_buckets) {
  return static_cast<int64_t>(buckets * sizeof(void*)) +
         local_buckets * static_cast<int64_t>(sizeof(EmbeddingStripe));
}

int64_t HostedTable::CountAbsent(const KeyGroups& groups, TableScratch& scratch) const {
  int64_t absent = 0;
  for (const KeyGroup& group : groups.groups()) {
    const EmbeddingStripe& stripe = *stripes_[group.bucket];
    absl::ReaderMutexLock lock(&stripe.mutex());
    absent += stripe.CountAbsent(groups.keys(group), scratch);
  }
  return absent;
}

HostedTable::Changed HostedTable::Push(const UpdateStep& step, const Origin& origin,
                                       const KeyGroups& groups, const float* gradients,
                                       TableScratch& scratch) {
  Changed changed;
  for (const KeyGroup& group : groups.groups()) {
    EmbeddingStripe& stripe = *stripes_[group.bucket];
    absl::MutexLock lock(&stripe.mutex());
    if (stripe.Has(origin)) continue;
    changed.made += stripe.Push(step, KeysOf(groups, group), gradients, scratch);
    stripe.Touch(origin, dirty());
    changed.any = true;
  }
  if (changed.made != 0) rows_.fetch_add(changed.made, std::memory_order_relaxed);
  return changed;
}

void HostedTable::Pull(size_t part, const KeyGroups& groups, float* out) const {
  for (const KeyGroup& group : groups.groups()) {
    const EmbeddingStripe& stripe = *stripes_[group.bucket];
    absl::ReaderMutexLock lock(&stripe.mutex());
    stripe.Pull(part, KeysOf(groups, group), out);
  }
}

int64_t HostedTable::Assign(size_t part, const Origin& origin, const KeyGroups& groups,
                            const float* values, std::vector<TouchedStripe>& touched) {
  int64_t made = 0;
  for (const KeyGroup& group : groups.groups()) {
    EmbeddingStripe& stripe = *stripes_[group.bucket];
    absl::MutexLock lock(&stripe.mutex());
    if (stripe.Has(origin)) continue;
    made += stripe.Assign(part, KeysOf(groups, group), values);
    stripe.Touch(Origin{}, dirty());
    touched.push_back({.stripe = &stripe, .dirty = &dirty()});
  }
  if (made != 0) rows_.fetch_add(made, std::memory_order_relaxed);
  return made;
}

}  // namespace cairn
