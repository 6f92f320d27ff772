// Every golden record of an optimizer that Cairn offers gives the recorded numbers through Thrift,
// with one server and with three: values after every push, slots at the end.
#include <iostream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/engine_cluster.h"
#include "tests/support/optimizer_records.h"
#include "tests/support/status_matchers.h"
#include "worker/client/ps_client.h"

namespace cairn::test {
namespace {

Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

// The storage of a record: a dense variable, or its rows under keys of a table.
struct Run {
  const OptimizerRecord& record;
  PsClient& client;
  std::string variable;
  bool table = false;
  std::vector<int64_t> all;  // every row

  Part part() const { return table ? Part::kKeys : Part::kWhole; }
  absl::Span<const int64_t> ids() const {
    return table ? absl::MakeConstSpan(all) : absl::Span<const int64_t>();
  }
  std::vector<float> Pull(const std::string& slot = "") const {
    std::vector<float> out(record.initial.size());
    EXPECT_OK(client.Pull({{.variable = variable,
                            .part = part(),
                            .ids = ids(),
                            .out = AsWritableBytes(absl::MakeSpan(out)),
                            .slot = slot}},
                          Soon()));
    return out;
  }
};

VariableSpec SpecOf(const Run& run, int32_t servers) {
  const OptimizerRecord& record = run.record;
  VariableSpec spec{.name = run.variable, .shape = record.shape};
  spec.optimizer = record.optimizer;
  spec.touched_rows = record.touched_rows;
  if (run.table) {
    spec.kind = VariableKind::kEmbedding;
    spec.shape = {record.shape[1]};
    return spec;
  }
  // Rows on every server, except that a norm covers the whole variable.
  const int64_t rows = record.shape[0];
  const bool whole = record.optimizer.clipnorm > 0;
  spec.shards = DivShards(rows, whole ? 1 : std::min<int64_t>(rows, servers)).value();
  for (size_t s = 0; s < spec.shards.size(); ++s) spec.shards[s].ps = static_cast<int32_t>(s);
  return spec;
}

void Reproduce(const Run& run, int32_t servers) {
  const OptimizerRecord& record = run.record;
  const std::string where = absl::StrCat(run.variable, " (", record.name, "), ", servers, " ps");
  ASSERT_OK(run.client.Create({SpecOf(run, servers)}, Soon())) << where;
  ASSERT_OK(run.client.Assign({{.variable = run.variable,
                                .part = run.part(),
                                .ids = run.ids(),
                                .values = AsBytes(absl::MakeConstSpan(record.initial))}},
                              Soon()));
  for (size_t t = 0; t < record.steps.size(); ++t) {
    const OptimizerRecordStep& step = record.steps[t];
    const Part part = run.table ? Part::kKeys : record.sparse ? Part::kRows : Part::kWhole;
    ASSERT_OK(run.client.Push({{.variable = run.variable,
                                .part = part,
                                .ids = step.ids,
                                .values = AsBytes(absl::MakeConstSpan(step.gradients))}},
                              "", Soon()));
    ASSERT_TRUE(
        AllClose(run.Pull(), step.expected, step.tolerance, absl::StrCat(where, ", step ", t + 1)));
  }
  for (const OptimizerRecordSlot& slot : record.slots) {
    EXPECT_TRUE(AllClose(run.Pull(slot.name), slot.expected, slot.tolerance,
                         absl::StrCat(where, ", slot ", slot.name)));
  }
}

void ReproduceAll(const std::vector<OptimizerRecord>& records, const std::string& file) {
  ASSERT_FALSE(records.empty());
  for (const int32_t servers : {1, 3}) {
    EngineCluster cluster(servers, Durability::kOff);
    ClientOptions options;
    options.job = "golden";
    options.worker = 0;
    options.task = "worker:0";
    auto client = cluster.Connect(options, /*in_process=*/false, Soon());
    ASSERT_OK(client);
    int variables = 0, tables = 0;
    for (const OptimizerRecord& record : records) {
      if (!record.not_offered.empty()) continue;
      std::vector<int64_t> rows(static_cast<size_t>(record.shape[0]));
      std::iota(rows.begin(), rows.end(), 0);
      Reproduce({record, **client, absl::StrCat("dense/", variables++), false, rows}, servers);
      // An embedding table changes only the pushed rows.
      if (!record.sparse || record.touched_rows != TouchedRows::kPushed) continue;
      Reproduce({record, **client, absl::StrCat("table/", tables++), true, rows}, servers);
    }
    std::cout << file << " through Thrift, " << servers << " ps: " << variables
              << " as dense variables, " << tables << " as tables; " << RecordCounts(records)
              << "\n";
  }
}

TEST(OptimizerServers, ReproduceDenseRecords) {
  SKIP_WITHOUT_GOLDEN("optimizers_dense.json");
  ReproduceAll(DenseOptimizerRecords(), "optimizers_dense.json");
}

TEST(OptimizerServers, ReproduceSparseRecords) {
  SKIP_WITHOUT_GOLDEN("optimizers_sparse.json");
  ReproduceAll(SparseOptimizerRecords(), "optimizers_sparse.json");
}

}  // namespace
}  // namespace cairn::test
