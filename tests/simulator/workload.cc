#include "tests/simulator/workload.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>

#include "common/hash.h"
#include "tests/simulator/random.h"

namespace cairn::simulator {
namespace {

// Rows hold float32: sums of marks below this limit are exact.
constexpr int64_t kMarks = 997;

int32_t StripesOf(const Options& options) {
  constexpr int32_t kMost = 32;  // bits of a set
  if (!options.rows_move()) return options.stripes;
  CHECK_LE(options.servers, kMost) << "rows move between that many servers at most";
  int32_t stripes = 16;
  while (stripes < options.servers) stripes *= 2;
  return stripes;
}

}  // namespace

Workload::Workload(const Options& options) : options_(options), stripes_(StripesOf(options)) {
  Random random(options.seed, 1);
  std::vector<double> popularity;  // running sums
  double sum = 0;
  for (int32_t s = 1; s < options.servers; ++s) {
    sum += std::pow(s, -options.skew);
    popularity.push_back(sum);
  }
  const size_t reach = std::min<size_t>(options.reach, popularity.size());
  for (int32_t w = 0; w < options.workers; ++w) {
    std::vector<int32_t>& servers = servers_.emplace_back(1, 0);
    for (int32_t s = 1; options.rows_move() && s < options.servers; ++s) servers.push_back(s);
    while (servers.size() < reach + 1) {
      const auto at = std::upper_bound(popularity.begin(), popularity.end(), random.Unit() * sum);
      const auto server =
          static_cast<int32_t>(std::min<int64_t>(at - popularity.begin(), options.servers - 2)) + 1;
      if (std::find(servers.begin(), servers.end(), server) == servers.end()) {
        servers.push_back(server);
      }
    }
    // The worker's first key in each stripe.
    std::vector<int64_t>& keys = keys_.emplace_back(stripes_, -1);
    int32_t missing = stripes_;
    for (int64_t key = int64_t{w} << 16; missing > 0; ++key) {
      int64_t& of_stripe = keys[BucketOfKey(key, static_cast<uint32_t>(stripes_))];
      if (of_stripe >= 0) continue;
      of_stripe = key;
      --missing;
    }
  }
}

uint32_t Workload::Stripes(int32_t worker, int64_t sequence, size_t slot) const {
  const uint32_t all = static_cast<uint32_t>((uint64_t{1} << stripes_) - 1);
  if (options_.rows_move()) {
    const uint64_t bits = MixBits(options_.seed ^ MixBits((uint64_t(worker) << 32) + sequence));
    const uint32_t one = 1u << (bits >> 58) % static_cast<uint32_t>(stripes_);
    return ((bits & bits >> 32) & all) | one;
  }
  const size_t slots = servers_[worker].size();
  const bool alone = slots == 1;
  if (slot == 0 && !alone) return 0;  // ps:0 holds no rows of jobs with other servers
  const uint64_t of_push = MixBits(options_.seed ^ MixBits((uint64_t(worker) << 32) + sequence));
  const uint64_t bits = MixBits(of_push + slot);
  // At least one server has a part.
  const bool chosen = alone || of_push % (slots - 1) + 1 == slot;
  if (!chosen && static_cast<double>(bits >> 11) * 0x1p-53 >= options_.touches) return 0;
  // One or two stripes.
  const uint32_t first = 1u << (bits & 0xff) % static_cast<uint32_t>(stripes_);
  const uint32_t second = 1u << (bits >> 8 & 0xff) % static_cast<uint32_t>(stripes_);
  return (first | second) & all;
}

int64_t Workload::Mark(int32_t worker, int64_t sequence) {
  return static_cast<int64_t>(MixBits((uint64_t(worker) << 40) ^ sequence) % kMarks);
}

int64_t Workload::Key(int32_t worker, uint32_t stripe) const { return keys_[worker][stripe]; }

}  // namespace cairn::simulator
