// The golden optimizer records as pushes, for tests that run them in process or through servers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/optimizer/optimizer.h"
#include "common/variables/variable_spec.h"
#include "tests/support/golden.h"

namespace cairn::test {

// One push, and the whole variable after the push.
struct OptimizerRecordStep {
  // Sparse records: pushed rows, repeats allowed (their gradients must be added). Dense: empty.
  std::vector<int64_t> ids;
  std::vector<float> gradients;  // [ids.size(), width], or of the whole variable
  std::vector<float> expected;   // row-major
  Tolerance tolerance;
};

// One slot of every element.
struct OptimizerRecordSlot {
  std::string name;
  float initial = 0;            // of every element; determined by `optimizer`
  std::vector<float> expected;  // after the last step, row-major
  Tolerance tolerance;
};

struct OptimizerRecord {
  std::string name;
  // Why the record is not run; "" for the others. All other fields are set only if this is "".
  std::string not_offered;
  bool sparse = false;
  TouchedRows touched_rows = TouchedRows::kAll;
  Shape shape;  // [count], or [rows, width] if sparse
  // Rates that change between steps are a piecewise_constant_decay.
  OptimizerConfig optimizer;
  std::vector<float> initial;
  std::vector<OptimizerRecordStep> steps;
  std::vector<OptimizerRecordSlot> slots;
};

// Every record of optimizers_dense.json and optimizers_sparse.json, offered or not. Throws
// std::runtime_error, which fails the test, for a record of the repository's own files that is not
// understood.
std::vector<OptimizerRecord> DenseOptimizerRecords();
std::vector<OptimizerRecord> SparseOptimizerRecords();

// The gradient of every row of `step`, with repeated ids added up: [rows, width], zero for rows
// that were not pushed. `touched[r]` says whether row r was pushed.
std::vector<float> SummedGradient(const OptimizerRecord& record, const OptimizerRecordStep& step,
                                  std::vector<bool>* touched);

// "ran N, not offered M of T", followed by a line for each record that is not offered.
std::string RecordCounts(const std::vector<OptimizerRecord>& records);

}  // namespace cairn::test
