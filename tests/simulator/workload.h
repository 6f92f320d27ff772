// Which push touches what: derived from the seed, so that a push is the same when it is computed
// again, and that what must be in a row is known without keeping it.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/simulator/options.h"

namespace cairn::simulator {

// Every worker has rows of its own, one in each stripe of the servers within its reach; a push adds
// 1 to column 0 of a row and `Mark` to column 1.
struct RowValue {
  double pushes = 0;
  double marks = 0;
  bool operator==(const RowValue&) const = default;
};

// Thread safety: reading only.
class Workload {
 public:
  explicit Workload(const Options& options);

  // Servers that worker `worker` talks to, ps:0 first; it calls them 0, 1, ….
  const std::vector<int32_t>& Servers(int32_t worker) const { return servers_[worker]; }
  // Of a server; where rows move, of the table.
  int32_t stripes() const { return stripes_; }
  // Bits of the stripes of its `slot`-th server that its push `sequence` touches; 0: no part. Where
  // rows move: of all stripes, whatever the slot.
  uint32_t Stripes(int32_t worker, int64_t sequence, size_t slot) const;
  // A small number that tells this push from others.
  static int64_t Mark(int32_t worker, int64_t sequence);
  // The key of the worker's row in a stripe.
  int64_t Key(int32_t worker, uint32_t stripe) const;

 private:
  const Options& options_;
  const int32_t stripes_;
  std::vector<std::vector<int32_t>> servers_;
  std::vector<std::vector<int64_t>> keys_;  // by worker, stripe
};

}  // namespace cairn::simulator
