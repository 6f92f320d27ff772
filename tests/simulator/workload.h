// Derives from the seed which rows each push touches. A push is the same when it is recomputed, and
// the expected value of a row is known without storing it.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/simulator/options.h"

namespace cairn::simulator {

// The expected value of a row. Each worker has a separate row in each stripe of the servers within
// its reach; a push adds 1 to column 0 of a row and `Mark` to column 1.
struct RowValue {
  double pushes = 0;
  double marks = 0;
  bool operator==(const RowValue&) const = default;
};

// Thread safety: const methods only.
class Workload {
 public:
  explicit Workload(const Options& options);

  // Servers within reach of `worker`, ps:0 first; the worker numbers them 0, 1, ….
  const std::vector<int32_t>& Servers(int32_t worker) const { return servers_[worker]; }
  // Stripes of a server or, if rows move, of the table.
  int32_t stripes() const { return stripes_; }
  // Bit set of the stripes on its server `slot` that push `sequence` touches; 0: no part. If rows
  // move: of all stripes, regardless of `slot`.
  uint32_t Stripes(int32_t worker, int64_t sequence, size_t slot) const;
  // A small number that identifies the push.
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
