// Every optimizer record that Cairn offers gives the recorded numbers through the engine: dense
// records as whole pushes, sparse ones as row pushes, and those that update only pushed rows also
// as tables.
#include <iostream>

#include "absl/strings/str_cat.h"
#include "tests/ps_server/server_fixture.h"
#include "tests/support/golden.h"
#include "tests/support/optimizer_records.h"
#include "thrift/convert.h"

namespace cairn {
namespace {

using test::AllClose;
using test::OptimizerRecord;
using test::OptimizerRecordStep;

class OptimizerGoldenTest : public ServerTest {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_GOLDEN("optimizers_dense.json");
    SKIP_WITHOUT_GOLDEN("optimizers_sparse.json");
    options_.durability = Durability::kOff;
    ASSERT_NO_FATAL_FAILURE(Start());
  }

  static wire::VariableSpec SpecOf(const OptimizerRecord& record, const std::string& name) {
    VariableSpec spec;
    spec.name = name;
    spec.shape = record.shape;
    spec.optimizer = record.optimizer;
    spec.touched_rows = record.touched_rows;
    return ToWire(spec);
  }

  // Sets the variable to the record's initial values, and its slots if the record has them.
  static void Begin(TestClient& client, const OptimizerRecord& record, const std::string& name) {
    ASSERT_OK(client.Create({SpecOf(record, name)})) << record.name;
    ASSERT_OK(client.Assign(name, record.initial)) << record.name;
    for (const auto& slot : record.slots) {
      const absl::StatusOr<std::vector<float>> initial = client.Pull(name, slot.name);
      ASSERT_OK(initial) << record.name << ", slot " << slot.name;
      for (const float value : *initial) ASSERT_EQ(value, slot.initial) << record.name;
    }
  }

  static void ExpectSlots(TestClient& client, const OptimizerRecord& record,
                          const std::string& name) {
    for (const auto& slot : record.slots) {
      EXPECT_TRUE(AllClose(*client.Pull(name, slot.name), slot.expected, slot.tolerance,
                           absl::StrCat(record.name, ", slot ", slot.name)));
    }
  }

  void RunDense(const OptimizerRecord& record, const std::string& name) {
    TestClient client = Client();
    ASSERT_NO_FATAL_FAILURE(Begin(client, record, name));
    for (const OptimizerRecordStep& step : record.steps) {
      ASSERT_OK(record.sparse ? client.PushRows(name, step.ids, step.gradients)
                              : client.Push(name, step.gradients))
          << record.name;
      ASSERT_TRUE(AllClose(*client.Pull(name), step.expected, step.tolerance, record.name));
    }
    ExpectSlots(client, record, name);
  }

  // Keys are scattered, so that rows of the record lie in different stripes.
  void RunTable(const OptimizerRecord& record, const std::string& name) {
    TestClient client = Client();
    const auto key = [](int64_t row) { return row * 1000003 + 17; };
    std::vector<int64_t> keys;
    for (int64_t row = 0; row < record.shape[0]; ++row) keys.push_back(key(row));
    wire::VariableSpec spec = SpecOf(record, name);
    spec.kind = wire::VariableKind::EMBEDDING;
    spec.shape = {record.shape[1]};
    ASSERT_OK(client.Create({spec})) << record.name;
    ASSERT_OK(client.AssignKeys(name, keys, record.initial)) << record.name;
    for (const OptimizerRecordStep& step : record.steps) {
      std::vector<int64_t> pushed;
      for (const int64_t id : step.ids) pushed.push_back(key(id));
      ASSERT_OK(client.PushKeys(name, pushed, step.gradients)) << record.name;
      ASSERT_TRUE(
          AllClose(*client.PullKeys(name, keys), step.expected, step.tolerance, record.name));
    }
    for (const auto& slot : record.slots) {
      EXPECT_TRUE(AllClose(*client.PullKeys(name, keys, slot.name), slot.expected, slot.tolerance,
                           absl::StrCat(record.name, ", slot ", slot.name)));
    }
  }
};

TEST_F(OptimizerGoldenTest, DenseRecordsRunAsWholePushes) {
  const std::vector<OptimizerRecord> records = test::DenseOptimizerRecords();
  std::cout << "dense records as whole pushes: " << test::RecordCounts(records) << "\n";
  int ran = 0;
  for (const OptimizerRecord& record : records) {
    if (!record.not_offered.empty()) continue;
    ASSERT_NO_FATAL_FAILURE(RunDense(record, absl::StrCat("dense", ran++)));
  }
  EXPECT_GT(ran, 0);
}

TEST_F(OptimizerGoldenTest, SparseRecordsRunAsRowPushes) {
  const std::vector<OptimizerRecord> records = test::SparseOptimizerRecords();
  std::cout << "sparse records as row pushes: " << test::RecordCounts(records) << "\n";
  int ran = 0;
  for (const OptimizerRecord& record : records) {
    if (!record.not_offered.empty()) continue;
    ASSERT_NO_FATAL_FAILURE(RunDense(record, absl::StrCat("rows", ran++)));
  }
  EXPECT_GT(ran, 0);
}

TEST_F(OptimizerGoldenTest, RecordsThatMovePushedRowsOnlyRunAsTables) {
  int ran = 0;
  for (const OptimizerRecord& record : test::SparseOptimizerRecords()) {
    if (!record.not_offered.empty() || record.touched_rows != TouchedRows::kPushed) continue;
    ASSERT_NO_FATAL_FAILURE(RunTable(record, absl::StrCat("table", ran++)));
  }
  std::cout << "sparse records as tables: " << ran << "\n";
  EXPECT_GT(ran, 0);
}

}  // namespace
}  // namespace cairn
