#include "ps_server/rows/row_census.h"

#include <algorithm>
#include <cmath>

#include "common/deadline.h"
#include "common/hash.h"
#include "ps_server/rows/hosted_table.h"

namespace cairn {
namespace {

constexpr absl::Duration kFresh = absl::Seconds(1);
constexpr uint32_t kSampledRows = 16384;
// Most rows read from one stripe, under its shared lock: about 50 us.
constexpr uint32_t kRowsALock = 1024;
// A hash spreads keys over buckets, so a sample of the stripes represents all.
constexpr uint32_t kSampledStripes = 256;

template <size_t n>
size_t RangeOf(const std::array<int64_t, n>& ranges, int64_t value) {
  return static_cast<size_t>(std::upper_bound(ranges.begin(), ranges.end(), value) -
                             ranges.begin()) -
         1;
}

struct Sample {
  double rows = 0;  // rows of the sampled stripes
  std::array<double, RowCensus::kAges.size()> by_age{};
  std::array<double, RowCensus::kUses.size()> by_use{};
};

void Look(const EmbeddingStripe& stripe, uint32_t rows, uint32_t turn, Sample& sample) {
  absl::ReaderMutexLock lock(&stripe.mutex());
  const uint32_t all = stripe.row_count();
  if (all == 0) return;
  const uint32_t step = (all + rows - 1) / rows;
  const uint32_t first = step == 1 ? 0 : static_cast<uint32_t>(MixBits(turn) % step);
  const double each = static_cast<double>(all) / ((all - first + step - 1) / step);
  for (uint32_t row = first; row < all; row += step) {
    sample.by_age[RangeOf(RowCensus::kAges, stripe.age(row))] += each;
    sample.by_use[RangeOf(RowCensus::kUses, stripe.rounds(row))] += each;
  }
  sample.rows += all;
}

}  // namespace

RowCensus& RowCensus::operator+=(const RowCensus& other) {
  for (size_t i = 0; i < by_age.size(); ++i) by_age[i] += other.by_age[i];
  for (size_t i = 0; i < by_use.size(); ++i) by_use[i] += other.by_use[i];
  return *this;
}

RowCensus CensusTaker::Of(const HostedTable& table) {
  absl::MutexLock lock(&mutex_);
  const absl::Duration now = MonotonicNow();
  if (taken_ && now - when_ < kFresh) return last_;
  const uint32_t step = (table.bucket_count() + kSampledStripes - 1) / kSampledStripes;
  const uint32_t rows =
      std::min(kRowsALock, kSampledRows / std::min(table.bucket_count(), kSampledStripes));
  Sample sample;
  for (uint32_t bucket = turn_ % step; bucket < table.bucket_count(); bucket += step) {
    if (const EmbeddingStripe* stripe = table.stripe(bucket); stripe != nullptr) {
      Look(*stripe, rows, turn_, sample);
    }
  }
  const double share =
      sample.rows == 0 ? 0 : static_cast<double>(table.rows_in_memory()) / sample.rows;
  RowCensus census;
  for (size_t i = 0; i < census.by_age.size(); ++i) {
    census.by_age[i] = std::llround(sample.by_age[i] * share);
  }
  for (size_t i = 0; i < census.by_use.size(); ++i) {
    census.by_use[i] = std::llround(sample.by_use[i] * share);
  }
  taken_ = true;
  when_ = now;
  ++turn_;
  return last_ = census;
}

}  // namespace cairn
