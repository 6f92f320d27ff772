// The content of the soak workers' pushes, as a function of only (worker, number), and the
// resulting values of variables: integers, whose sums are exact.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/deadline.h"
#include "common/variables/variable_spec.h"
#include "thrift/cairn_types.h"
#include "worker/client/ps_client.h"

namespace cairn::test {

inline constexpr int32_t kKnownServers = 3;
inline constexpr int64_t kDenseRows = 30, kDenseWidth = 4;
inline constexpr int64_t kSparseRows = 3 * 2048, kSparseWidth = 64;  // two stripes a server
inline constexpr int64_t kKeys = 4096;
// Width of the table: 4, or CAIRN_KNOWN_WIDTH, for rows that do not fit small servers.
int64_t TableWidth();

// dense (float64, pushed whole), sparse (rows) and table (keys), with SGD at rate 1.
std::vector<VariableSpec> KnownSpecs();
VariableSpec KnownSpec(absl::string_view name, VariableKind kind, DType dtype, Shape shape);

// The amount by which item `what` of a push raises the rows that it touches: 1 to 3.
int KnownRaise(int32_t worker, int64_t number, int64_t what);

// The key of a push; different for every push.
int64_t SeenKey(int32_t worker, int64_t number);

// Gradients of KnownSpecs(): -factor · x for a value that must rise by x. Thread safety: none.
class KnownGradients {
 public:
  // Valid until the next call.
  std::vector<PushSource> Make(int32_t worker, int64_t number, int factor);

 private:
  std::vector<double> dense_;
  std::vector<int64_t> rows_, keys_;
  std::vector<float> row_values_, key_values_;
};

class Differences {
 public:
  // Element i of `found` should be expected[i / width].
  template <typename Found>
  void Compare(absl::string_view variable, const std::vector<Found>& found,
               const std::vector<double>& expected, int64_t width) {
    for (size_t i = 0; i < found.size(); ++i) {
      const double want = expected[i / width];
      if (found[i] != want) AddElement(variable, static_cast<int64_t>(i) / width, found[i], want);
    }
  }
  void AddElement(absl::string_view variable, int64_t index, double found, double want);
  void Add(absl::string_view line);
  // kDataLoss: the differences, limited to a few lines.
  absl::Status Status() const;

 private:
  int64_t count_ = 0;
  std::string text_;
};

// The expected values of KnownSpecs().
class KnownTotals {
 public:
  // Adds a push with values times `factor`.
  void Add(int32_t worker, int64_t number, double factor);
  absl::Status Compare(PsClient& client, Differences* differences) const;

 private:
  std::vector<double> dense_ = std::vector<double>(kDenseRows * kDenseWidth);
  std::vector<double> rows_ = std::vector<double>(kSparseRows);  // value of every element of a row
  std::vector<double> keys_ = std::vector<double>(kKeys);
};

// Pulls all of a variable (no keys), or these keys; a slot, or the value.
template <typename T>
absl::Status PullInto(PsClient& client, absl::string_view variable,
                      const std::vector<int64_t>& keys, std::vector<T>* out, Deadline deadline,
                      absl::string_view slot = "") {
  return client.Pull({{.variable = variable,
                       .part = keys.empty() ? Part::kWhole : Part::kKeys,
                       .ids = keys,
                       .out = AsWritableBytes(absl::MakeSpan(*out)),
                       .slot = slot}},
                     deadline);
}

// Each server's description of the job, in server order.
absl::StatusOr<std::vector<wire::DescribeReply>> DescribeServers(
    const std::vector<std::string>& servers, const std::string& job, Deadline deadline);

}  // namespace cairn::test
