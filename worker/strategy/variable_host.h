// Where a ParameterServerStrategy keeps its variables: the parameter servers, seen as whole
// variables of rows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/tensor.h"
#include "common/variables/variable_spec.h"

namespace cairn {

class PsClient;

// Some rows of a variable, or all. Rows may be in any order.
struct HostedRows {
  std::string variable;
  std::optional<absl::Span<const int64_t>> rows;  // none: all
};

// Part of a push: `values` are shaped [rows, rest of the variable's shape].
struct HostedGradient {
  HostedRows to;
  Tensor values;
};

// Thread safety: every method may be called from several threads at once.
//
// Errors of every call, besides its own: kUnavailable, kDeadlineExceeded: a server is gone.
// kInvalidArgument: a variable that was not created, a wrong dtype or shape, a row out of range.
class VariableHost {
 public:
  virtual ~VariableHost() = default;

  virtual int32_t server_count() const = 0;
  // `spec` says on which servers each run of rows is; its optimizer is PlainUpdates() where Add is
  // to work. `initial`, of the spec's dtype and shape, is written if the servers do not have the
  // variable yet; what they have is kept. A process that is killed in between leaves zeros.
  // kAlreadyExists: with another spec.
  virtual absl::Status Create(const VariableSpec& spec, const Tensor& initial) = 0;
  virtual absl::StatusOr<Tensor> Read(const HostedRows& from) = 0;
  // Rows without repeats.
  virtual absl::Status Assign(const HostedRows& to, const Tensor& values) = 0;
  // Adds, or subtracts, once and at once for every reader and writer of a row; repeated rows are
  // summed first. kUnimplemented: the variable has another optimizer.
  virtual absl::Status Add(const HostedRows& to, const Tensor& delta, bool subtract) = 0;
  // One update of every variable named, by its own optimizer.
  virtual absl::Status Push(absl::Span<const HostedGradient> gradients) = 0;
};

// On the servers of `client`, which must be sequenced (ClientOptions.worker >= 0) for updates to
// count exactly once. A call is given `timeout`.
//
// Optimizers, and so Add, move floating numbers alone. An int32 or int64 variable is therefore kept
// as float64 on the servers, exact for integers up to 2^53: larger ones are refused
// (kInvalidArgument), and a sum that has grown beyond is kOutOfRange when it is read.
std::unique_ptr<VariableHost> HostOnServers(std::shared_ptr<PsClient> client,
                                            absl::Duration timeout = absl::Seconds(60));

// The optimizer of variables that are no parameters: w -= 1 * gradient.
OptimizerConfig PlainUpdates();

}  // namespace cairn
