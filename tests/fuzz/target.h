// The server under test: an engine on its own store, called without a network, through serialized
// bytes, or over a socket.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "ps_server/base/engine_options.h"
#include "ps_server/net/listener.h"
#include "tests/support/temp_dir.h"
#include "thrift/ParameterServer.h"

namespace cairn {

class Engine;

namespace fuzz {

// The transport of requests and replies.
enum class Transport {
  kDirect,  // as structs
  kBytes,   // serialized and parsed, as TBinaryProtocol does
  kSocket,  // over a loopback connection
};

// The outcome of a call.
struct Outcome {
  bool ok = true;
  wire::ServerError error;
  bool out_of_memory = false;  // std::bad_alloc left the service
  int64_t tries = 1;           // number of runs by FailEachAllocation
  // A finding: an exception that is not a ServerError, or an error that no server may return.
  std::string finding;

  bool Is(wire::ErrorReason::type reason) const { return !ok && error.reason == reason; }
  bool Is(wire::ErrorCode::type code) const { return !ok && error.code == code; }
};

// Not a finding: the server stops working because an allocation for a write to its disk failed.
inline constexpr absl::string_view kServerStopped = "the server stopped";

// OK, or a general flaw of the error: a code that stands for a bug, a missing or overlong text.
std::string FindInsaneError(const wire::ServerError& error);

// Thread safety: none.
class Target {
 public:
  explicit Target(Transport transport);
  ~Target();

  // Opens a new store. Returns a finding, or "".
  std::string Open(const EngineOptions& options);
  // Ends the engine properly and reopens its store.
  std::string Restart();
  // Opens a copy of the store's current state, as after a crash of the process.
  std::string Crash();

  // Runs one call; `body` calls a method of the service that it receives.
  Outcome Call(absl::FunctionRef<void(wire::ParameterServerIf&)> body);
  Engine& engine() { return *engine_; }
  const EngineOptions& options() const { return options_; }
  // A folder for checkpoints.
  std::string folder() const { return folder_->path(); }
  // The wall clock of the engine, in seconds; only AdvanceClock changes it.
  void AdvanceClock(int64_t seconds) { *clock_ += seconds; }
  int64_t clock() const { return *clock_; }
  int64_t calls() const { return calls_; }
  // 1, 2, …: for names of objects that outlive a sequence.
  int64_t NextNumber() { return ++numbers_; }

 private:
  std::string Start();
  std::string Connect();
  void End();

  const Transport transport_;
  std::unique_ptr<TempDir> folder_;
  EngineOptions options_;
  std::shared_ptr<int64_t> clock_ = std::make_shared<int64_t>(1'700'000'000);
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<wire::ParameterServerIf> remote_;
  wire::ParameterServerIf* service_ = nullptr;
  int copies_ = 0;
  int64_t calls_ = 0;
  int64_t numbers_ = 0;
};

}  // namespace fuzz
}  // namespace cairn
