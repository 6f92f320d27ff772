// The golden optimizer records as pushes, for tests that run them in process or through servers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/optimizer/optimizer.h"
#include "common/variables/variable_spec.h"
#include "tests/support/golden.h"

namespace cairn::test {

// One push, and the whole variable after it.
struct OptimizerRecordStep {
  // Sparse records: rows pushed, repeats allowed (their gradients are to be added). Dense: empty.
  std::vector<int64_t> ids;
  std::vector<float> gradients;  // [ids.size(), width] or the whole variable's
  std::vector<float> expected;   // row-major
  Tolerance tolerance;
};

// One slot of every element.
struct OptimizerRecordSlot {
  std::string name;
  float initial = 0;            // of every element; what `optimizer` gives by itself
  std::vector<float> expected;  // after the last step, row-major
  Tolerance tolerance;
};

struct OptimizerRecord {
  std::string name;
  // Why the record is not run, "" for those that are. All else is set only where this is "".
  std::string not_offered;
  bool sparse = false;
  TouchedRows touched_rows = TouchedRows::kAll;
  Shape shape;  // [count], or [rows, width] where sparse
  // Rates that change from step to step are a piecewise_constant_decay.
  OptimizerConfig optimizer;
  std::vector<float> initial;
  std::vector<OptimizerRecordStep> steps;
  std::vector<OptimizerRecordSlot> slots;
};

// Every record of optimizers_dense.json and optimizers_sparse.json, offered or not. A record of the
// repository's own files that is not understood throws std::runtime_error, which fails the test.
std::vector<OptimizerRecord> DenseOptimizerRecords();
std::vector<OptimizerRecord> SparseOptimizerRecords();

// The gradient of every row of `step`, ids that repeat added up: [rows, width], zero where nothing
// was pushed. `touched[r]` tells whether row r was pushed.
std::vector<float> SummedGradient(const OptimizerRecord& record, const OptimizerRecordStep& step,
                                  std::vector<bool>* touched);

// "ran N, not offered M of T", then a line for each record that is not offered.
std::string RecordCounts(const std::vector<OptimizerRecord>& records);

}  // namespace cairn::test
