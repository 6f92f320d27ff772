// Every record of ops.json: outputs and gradients equal TensorFlow's.
#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/golden.h"
#include "worker/ops/concat.h"
#include "worker/ops/dense.h"
#include "worker/ops/elementwise.h"
#include "worker/ops/embedding_lookup.h"
#include "worker/ops/interaction.h"

namespace cairn {
namespace {

using nlohmann::json;
using test::GoldenFloats;

// One record with its tolerance; Expect compares with a field of `expected`.
struct Record {
  const json& fields;
  test::Tolerance tolerance;

  std::vector<float> Input(const char* name) const {
    return GoldenFloats(fields.at("inputs").at(name));
  }
  int64_t Extent(const char* name, int axis) const {
    const json* at = &fields.at("inputs").at(name);
    for (; axis > 0; --axis) at = &at->at(0);
    return static_cast<int64_t>(at->size());
  }
  std::vector<float> Upstream() const { return GoldenFloats(fields.at("upstream")); }
  void Expect(const char* name, const std::vector<float>& got) const {
    EXPECT_TRUE(test::AllClose(got, GoldenFloats(fields.at("expected").at(name)), tolerance,
                               fields.at("name").get<std::string>() + ", " + name));
  }
};

void CheckDense(const Record& record, bool relu) {
  const DenseShape shape{.rows = record.Extent("x", 0),
                         .inputs = record.Extent("x", 1),
                         .outputs = record.Extent("w", 1),
                         .x_stride = record.Extent("x", 1)};
  const std::vector<float> x = record.Input("x"), w = record.Input("w"), b = record.Input("b");
  std::vector<float> d_y = record.Upstream();
  std::vector<float> y(d_y.size()), d_x(x.size()), d_w(w.size()), d_b(b.size());
  DenseForward(shape, x.data(), w.data(), b.data(), relu, y.data());
  if (relu) ReluBackward(y.data(), d_y.data(), y.size());
  DenseBackward(shape, x.data(), w.data(), d_y.data(), d_x.data(), shape.inputs, d_w.data(),
                d_b.data());
  record.Expect("output", y);
  record.Expect("d_x", d_x);
  record.Expect("d_w", d_w);
  record.Expect("d_b", d_b);
}

void CheckRelu(const Record& record) {
  std::vector<float> y = record.Input("x"), d = record.Upstream();
  Relu(y.data(), y.size());
  ReluBackward(y.data(), d.data(), d.size());
  record.Expect("output", y);
  record.Expect("d_x", d);
}

void CheckConcat(const Record& record) {
  const int64_t rows = record.Extent("a", 0);
  int64_t width = 0;
  for (const char* name : {"a", "b", "c"}) width += record.Extent(name, 1);
  std::vector<float> wide(static_cast<size_t>(rows * width));
  const std::vector<float> upstream = record.Upstream();
  int64_t at = 0;
  for (const char* name : {"a", "b", "c"}) {
    const int64_t columns = record.Extent(name, 1);
    const std::vector<float> part = record.Input(name);
    std::vector<float> d_part(part.size());
    CopyColumns(part.data(), columns, rows, columns, wide.data() + at, width);
    CopyColumns(upstream.data() + at, width, rows, columns, d_part.data(), columns);
    record.Expect((std::string("d_") + name).c_str(), d_part);
    at += columns;
  }
  record.Expect("output", wide);
}

void CheckFactorizationMachine(const Record& record) {
  const size_t rows = static_cast<size_t>(record.Extent("e", 0));
  const size_t fields = static_cast<size_t>(record.Extent("e", 1));
  const size_t factors = static_cast<size_t>(record.Extent("e", 2));
  const std::vector<float> e = record.Input("e");
  std::vector<float> sums(rows * factors), out(rows), d_e(e.size());
  FmForward(e.data(), rows, fields, factors, sums.data(), out.data());
  FmBackward(e.data(), sums.data(), record.Upstream().data(), rows, fields, factors, d_e.data());
  record.Expect("output", out);
  record.Expect("d_e", d_e);
}

void CheckDotInteraction(const Record& record) {
  const size_t rows = static_cast<size_t>(record.Extent("e", 0));
  const size_t vectors = static_cast<size_t>(record.Extent("e", 1));
  const size_t width = static_cast<size_t>(record.Extent("e", 2));
  const size_t pairs = DotPairs(vectors);
  const std::vector<float> e = record.Input("e");
  std::vector<float> out(rows * pairs), d_e(e.size());
  DotInteraction(e.data(), rows, vectors, width, out.data(), pairs);
  DotInteractionBackward(e.data(), record.Upstream().data(), pairs, rows, vectors, width,
                         d_e.data());
  record.Expect("output", out);
  record.Expect("d_e", d_e);
}

Combiner CombinerOf(const std::string& name) {
  if (name == "sum") return Combiner::kSum;
  if (name == "mean") return Combiner::kMean;
  if (name == "sqrtn") return Combiner::kSqrtn;
  throw test::UnknownRecord("unknown combiner " + name);
}

void CheckLookup(const Record& record, bool safe) {
  const json& in = record.fields.at("inputs");
  const std::vector<float> table = record.Input("table");
  const auto rows = in.at("row_of_id").get<std::vector<int32_t>>();
  const auto ids = in.at("ids").get<std::vector<int64_t>>();
  const std::vector<float> weights =
      in.contains("weights") ? record.Input("weights") : std::vector<float>();
  const SparseIds input{
      .rows = in.at("rows").get<int64_t>(), .row_of_id = rows, .ids = ids, .weights = weights};
  LookupOptions options{.combiner = CombinerOf(in.at("combiner")), .safe = safe};
  if (in.contains("default_id") && !in.at("default_id").is_null()) {
    options.default_id = in.at("default_id").get<int64_t>();
  }
  const int64_t width = record.Extent("table", 1);
  const std::vector<float> upstream = record.Upstream();
  std::vector<float> out(upstream.size()), d_table(table.size()), d_weights(ids.size());
  absl::Status status = EmbeddingLookupSparse(table, width, input, options, absl::MakeSpan(out));
  ASSERT_TRUE(status.ok()) << status;
  status = EmbeddingLookupSparseBackward(table, width, input, options, upstream,
                                         absl::MakeSpan(d_table), absl::MakeSpan(d_weights));
  ASSERT_TRUE(status.ok()) << status;
  record.Expect("output", out);
  record.Expect("d_table", d_table);
  if (!weights.empty()) record.Expect("d_weights", d_weights);
}

void Check(const Record& record) {
  const std::string name = record.fields.at("name");
  if (name == "dense") return CheckDense(record, false);
  if (name == "dense, relu") return CheckDense(record, true);
  if (name == "relu") return CheckRelu(record);
  if (name == "concat") return CheckConcat(record);
  if (name == "factorization machine, second order") return CheckFactorizationMachine(record);
  if (name == "dot interaction") return CheckDotInteraction(record);
  if (name.rfind("embedding_lookup_sparse", 0) == 0) return CheckLookup(record, false);
  if (name.rfind("safe_embedding_lookup_sparse", 0) == 0) return CheckLookup(record, true);
  throw test::UnknownRecord("no op '" + name + "'");
}

TEST(GoldenOps, EveryRecordEqualsTensorFlow) {
  test::ForEachGolden("ops.json", "cases", [](const json& fields) {
    Check({fields, test::GoldenTolerance(test::GoldenFile("ops.json").at("tolerance"))});
  });
}

}  // namespace
}  // namespace cairn
