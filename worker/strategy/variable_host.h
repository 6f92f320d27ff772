// Storage of a ParameterServerStrategy's variables: the parameter servers, seen as whole variables
// of rows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/tensor.h"
#include "common/variables/variable_spec.h"

namespace cairn {

class PsClient;

// Some or all rows of a variable, in any order.
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
// Every call can also return kUnavailable and kDeadlineExceeded (a server cannot be reached) and
// kInvalidArgument (a variable that was not created, a wrong dtype or shape, a row out of range).
class VariableHost {
 public:
  // HostOnServers says what is required of `client`.
  VariableHost(std::shared_ptr<PsClient> client, absl::Duration timeout);

  // PsClient::servers and PsClient::listed_servers; none without a client.
  std::vector<int32_t> servers() const;
  int32_t listed_servers() const;
  // `spec` assigns each range of rows to a server, and gets the ranges and servers of the variable
  // of this name and shape if the servers have it. Its optimizer must be PlainUpdates() for Add to
  // work. `initial`, of the spec's dtype and shape, is written if no program has written it; other
  // values are kept. A marker on the servers, the variable NAME/.initialized, says so, also after a
  // program was killed in the middle. Variables whose initial value is 0 need none. kAlreadyExists:
  // the variable exists with another spec.
  absl::Status Create(VariableSpec* spec, const Tensor& initial);
  absl::StatusOr<Tensor> Read(const HostedRows& from);
  // Rows must not repeat.
  absl::Status Assign(const HostedRows& to, const Tensor& values);
  // Adds or subtracts exactly once, and atomically for all readers and writers of a row; repeated
  // rows are summed first. kUnimplemented: the variable has another optimizer.
  absl::Status Add(const HostedRows& to, const Tensor& delta, bool subtract);
  // One update of every named variable, by its own optimizer, also where the gradient has no rows.
  absl::Status Push(absl::Span<const HostedGradient> gradients);

 private:
  absl::StatusOr<VariableSpec> Find(const std::string& name) const;
  absl::StatusOr<Tensor> Checked(absl::string_view method, const HostedRows& to,
                                 const Tensor& values) const;
  // Writes `initial`, then 1 to `marker`, unless `marker` is 1.
  absl::Status WriteOnce(const VariableSpec& spec, const std::string& marker,
                         const Tensor& initial);
  absl::Status PushKept(absl::Span<const HostedGradient> gradients);

  const std::shared_ptr<PsClient> client_;
  const absl::Duration timeout_;
  mutable absl::Mutex mutex_;
  absl::btree_map<std::string, VariableSpec> specs_ ABSL_GUARDED_BY(mutex_);
};

// A host on the servers of `client`, which must be sequenced (ClientOptions.worker >= 0) so that
// every update counts exactly once. `timeout` bounds each call. Without a client the host has no
// server, and creates nothing.
//
// Optimizers, and therefore Add, work only on floating-point numbers. The servers therefore keep an
// int32 or int64 variable as float64, exact for integers up to 2^53. Larger values are refused
// (kInvalidArgument); reading a sum that has grown beyond is kOutOfRange.
std::unique_ptr<VariableHost> HostOnServers(std::shared_ptr<PsClient> client,
                                            absl::Duration timeout = absl::Seconds(60));

// The optimizer of variables that are not model parameters: w -= 1 * gradient.
OptimizerConfig PlainUpdates();

}  // namespace cairn
