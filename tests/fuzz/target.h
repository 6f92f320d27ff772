// The server under test: an engine on a store of its own, called without a network, through the
// bytes of the wire, or over a socket.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "ps_server/engine/engine.h"
#include "ps_server/net/checked_service.h"
#include "ps_server/net/listener.h"
#include "tests/support/temp_dir.h"

namespace cairn::fuzz {

// How requests and replies travel.
enum class Transport {
  kDirect,  // as structs
  kBytes,   // written and read again, as TBinaryProtocol does
  kSocket,  // over a loopback connection
};

// What became of a call.
struct Outcome {
  bool ok = true;
  wire::ServerError error;
  bool out_of_memory = false;  // std::bad_alloc left the service
  int64_t tries = 1;           // of FailEachAllocation
  // A finding: an exception that is no ServerError, or an error that no server may answer.
  std::string finding;

  bool Is(wire::ErrorReason::type reason) const { return !ok && error.reason == reason; }
  bool Is(wire::ErrorCode::type code) const { return !ok && error.code == code; }
};

// Not a finding: the server refuses to work on, since memory for writing to its disk was refused.
inline constexpr absl::string_view kServerStopped = "the server stopped";

// OK or what is wrong with an error as such: codes that stand for bugs, a missing or overlong text.
std::string FindInsaneError(const wire::ServerError& error);

// Thread safety: none.
class Target {
 public:
  explicit Target(Transport transport) : transport_(transport) {}
  ~Target();

  // Opens a new store. Returns a finding, or "".
  std::string Open(const EngineOptions& options);
  // Ends the engine properly and opens its store again.
  std::string Restart();
  // Opens a copy of the store as it is now, as after a crash of the process.
  std::string Crash();

  // Runs one call; `body` calls a method of the service it is given.
  Outcome Call(absl::FunctionRef<void(wire::ParameterServerIf&)> body);
  Engine& engine() { return *engine_; }
  const EngineOptions& options() const { return options_; }
  // A folder for checkpoints.
  std::string folder() const { return folder_->path(); }
  // The wall clock that the engine sees, in seconds; moves by AdvanceClock alone.
  void AdvanceClock(int64_t seconds) { *clock_ += seconds; }
  int64_t clock() const { return *clock_; }
  int64_t calls() const { return calls_; }
  // 1, 2, …: names what outlives a sequence.
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
  std::unique_ptr<CheckedService> checked_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<wire::ParameterServerIf> remote_;
  wire::ParameterServerIf* service_ = nullptr;
  int copies_ = 0;
  int64_t calls_ = 0;
  int64_t numbers_ = 0;
};

}  // namespace cairn::fuzz
