// One parameter server without its network: variables in memory, persistence and the RPCs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps_server/base/engine_options.h"

namespace cairn {
namespace wire {
class ParameterServerIf;  // thrift/ParameterServer.h
}

struct EngineStatistics;  // ps_server/core/statistics.h
enum class StatisticsDetail : int;

// Thread safety: every method may be called from several threads at once.
class Engine {
 public:
  virtual ~Engine() = default;  // calls Close and ignores its error

  // Opens the directory and loads its contents into memory. Errors as StripeStore::Open;
  // kResourceExhausted if the contents exceed the memory budget.
  static absl::StatusOr<std::unique_ptr<Engine>> Open(const EngineOptions& options);
  // Whether an engine, of any process, has the directory open.
  static bool IsOpen(const std::string& directory);

  // The RPCs of the IDL. They throw wire::ServerError and nothing else. Payloads in requests may
  // view the caller's memory, which is read only during the call. Valid as long as the engine.
  virtual wire::ParameterServerIf& service() = 0;

  // Reserves memory for a message of `bytes` that is about to be read or written. Waits up to
  // memory_wait for other calls to release memory, then fails with kResourceExhausted. Pair with
  // ReleaseMessage.
  virtual absl::Status AcquireMessage(int64_t bytes) = 0;
  virtual void ReleaseMessage(int64_t bytes) = 0;

  virtual EngineStatistics ReadStatistics(StatisticsDetail detail) const = 0;
  // Why the server rejects pushes; OK: it accepts them. Reads memory alone.
  virtual absl::Status failure() const = 0;
  // Workers of all jobs that have not left and have renewed their lease.
  virtual int32_t live_workers() const = 0;

  // Applies every table's RowRules now, whatever the interval. Errors as failure().
  virtual absl::Status KeepRowRules() { return absl::OkStatus(); }

  // The server will stop soon: calls that read the files of a checkpoint and waits for other
  // workers end with STOPPING.
  virtual void CancelLongCalls() {}
  // Whether a drain runs, or its reply has not been sent yet: the caller learns the outcome from
  // nothing else.
  virtual bool AnswersDrain() const { return false; }

  // Rejects new calls (STOPPING), waits for running calls, flushes and closes the store.
  virtual absl::Status Close() = 0;
};

}  // namespace cairn
