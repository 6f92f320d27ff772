// What every function of the C interface does around its work: turns statuses and exceptions into
// codes, keeps the last error, and lets the program interrupt waits.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/config/job_config.h"
#include "common/deadline.h"
#include "common/variables/variable_spec.h"
#include "worker/capi/c.h"
#include "worker/client/ps_client.h"

namespace cairn::capi {

// The facts about a variable that checks of items need.
struct KnownVariable {
  VariableKind kind;
  DType dtype;
  Shape shape;  // embedding: [dim]
};

// The object behind a cairn_client handle. Thread safety: every member function may be called from
// several threads at once, and so may those of `ps`.
class Client {
 public:
  Client(std::unique_ptr<PsClient> ps, std::string job, int32_t worker, absl::Duration timeout)
      : ps(std::move(ps)), job(std::move(job)), worker(worker), timeout_(timeout) {}

  void Learn(absl::Span<const VariableSpec> specs);
  // kNotFound: the variable was neither created nor described through this client.
  absl::StatusOr<KnownVariable> Find(absl::string_view variable) const;
  // The deadline in `timeout_seconds`; 0: the client's own timeout. kInvalidArgument: a negative
  // number or NaN.
  absl::StatusOr<Deadline> DeadlineIn(double timeout_seconds) const;

  std::unique_ptr<PsClient> ps;  // set before the handle is given out
  const std::string job;
  const int32_t worker;
  PartitionerConfig partitioner;

 private:
  const absl::Duration timeout_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, KnownVariable> variables_ ABSL_GUARDED_BY(mutex_);
};

// Runs `body`, returns the code of its status, and keeps its error as this thread's last one.
// `function` names the C function in messages. Exceptions become errors. kCancelled: the interrupt
// check ended a wait.
int Run(absl::string_view function, absl::FunctionRef<absl::Status()> body);
// Like Run, with the client behind `handle` and the deadline in `timeout_seconds`.
int RunWith(absl::string_view function, const cairn_client* handle, double timeout_seconds,
            absl::FunctionRef<absl::Status(Client&, Deadline)> body);

// `status` of parsing `text` without the places of one-line texts, "SOURCE:1: ": programs write
// such texts, and their users gave the keys in another way.
absl::Status WithoutLine(const absl::Status& status, absl::string_view text,
                         absl::string_view source);
// A message in the terms of programs that use this interface, which have descriptions and calls.
// The code below is shared with Cairn's programs, and its messages name flags and keys of job
// files.
std::string InTermsOfCalls(absl::string_view message);
// Returns a copy of `text` that the program frees by cairn_free_text.
char* CopyText(absl::string_view text);
// kInvalidArgument: null; `what` names the argument.
absl::Status CheckNotNull(const void* pointer, absl::string_view what);

}  // namespace cairn::capi
