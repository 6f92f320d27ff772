#include "tests/fuzz/target.h"

#include <exception>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ps_server/engine/engine.h"
#include "tests/fuzz/outside_store.h"
#include "tests/fuzz/wire_copy.h"
#include "tests/integration/remote_service.h"
#include "tests/support/addresses.h"
#include "tests/support/copy_store.h"
#include "thrift/ParameterServer.h"
#include "thrift/limits.h"

namespace cairn::fuzz {

std::string FindInsaneError(const wire::ServerError& error) {
  const auto code = static_cast<int>(error.code);
  const auto reason = static_cast<int>(error.reason);
  if (code <= 0 || code > wire::ErrorCode::UNAUTHENTICATED || code == wire::ErrorCode::INTERNAL ||
      code == wire::ErrorCode::UNKNOWN || code == wire::ErrorCode::DATA_LOSS) {
    return absl::StrCat("an error with code ", code, ": ", error.message);
  }
  if (reason < 0 || reason > wire::ErrorReason::TIMELINE_ENDED) {
    return absl::StrCat("an error with reason ", reason, ": ", error.message);
  }
  if (error.message.empty() || error.message.size() > kMaxErrorTextBytes) {
    return absl::StrCat("an error with a text of ", error.message.size(), " bytes");
  }
  if (error.message.find('\n') != std::string::npos) {
    return absl::StrCat("an error of several lines: ", error.message);
  }
  if (reason == wire::ErrorReason::STOPPING) {
    return absl::StrCat("the server refuses to work: ", error.message);
  }
  return "";
}

Target::Target(Transport transport) : transport_(transport) {}

Target::~Target() { End(); }

void Target::End() {
  remote_.reset();
  if (listener_ != nullptr) listener_->Stop();
  listener_.reset();
  engine_.reset();
}

std::string Target::Open(const EngineOptions& options) {
  End();
  folder_ = std::make_unique<TempDir>();
  options_ = options;
  options_.directory = folder_->Join("store");
  options_.wall_clock = [clock = clock_] { return absl::FromUnixSeconds(*clock); };
  options_.row_clock = options_.wall_clock;
  return Start();
}

std::string Target::Start() {
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Open(options_);
  if (!engine.ok()) return absl::StrCat("open: ", engine.status().ToString());
  engine_ = *std::move(engine);
  if (transport_ == Transport::kSocket) {
    absl::StatusOr<std::unique_ptr<Listener>> listener =
        Listener::Start(*engine_, OnOwnAddress<ListenerOptions>());
    if (!listener.ok()) return absl::StrCat("listen: ", listener.status().ToString());
    listener_ = *std::move(listener);
    return Connect();
  }
  service_ = &engine_->service();
  if (transport_ == Transport::kBytes) {
    remote_ = CopyOnTheWire(engine_->service());
    service_ = remote_.get();
  }
  return "";
}

std::string Target::Connect() {
  auto remote = ConnectToServer(listener_->address());
  if (!remote.ok()) return absl::StrCat("connect: ", remote.status().ToString());
  remote_ = *std::move(remote);
  service_ = remote_.get();
  return "";
}

std::string Target::Restart() {
  remote_.reset();
  if (listener_ != nullptr) listener_->Stop();
  listener_.reset();
  const absl::Status closed = engine_->Close();
  End();
  if (!closed.ok()) return absl::StrCat("close: ", closed.ToString());
  return Start();
}

std::string Target::Crash() {
  const std::string copy = folder_->Join(absl::StrCat("copy", copies_++));
  test::CopyStore(options_.directory, copy);
  End();
  options_.directory = copy;
  return Start();
}

Outcome Target::Call(absl::FunctionRef<void(wire::ParameterServerIf&)> body) {
  ++calls_;
  Outcome outcome;
  try {
    body(*service_);
  } catch (const wire::ServerError& error) {
    const OutsideCairn harness;
    outcome.ok = false;
    outcome.error = error;
    outcome.finding = FindInsaneError(error);
  } catch (const std::bad_alloc&) {
    const OutsideCairn harness;
    outcome.ok = false;
    outcome.out_of_memory = true;
    outcome.finding = "a call threw std::bad_alloc";
  } catch (const std::exception& error) {
    const OutsideCairn harness;
    outcome.ok = false;
    outcome.finding = absl::StrCat("a call threw ", error.what());
  }
  // A frame that cannot be parsed ends its connection.
  if (!outcome.ok && transport_ == Transport::kSocket && outcome.finding.empty()) {
    outcome.finding = Connect();
  }
  return outcome;
}

}  // namespace cairn::fuzz
