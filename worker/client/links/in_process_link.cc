// Direct calls into a server of this process: requests refer to the caller's memory, and nothing is
// serialized.
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/errors.h"
#include "common/status.h"
#include "thrift/ParameterServer.h"
#include "thrift/errors.h"
#include "worker/client/links/server_link.h"

namespace cairn {
namespace {

// Stateless, so one object serves all threads.
class InProcessChannel : public Channel {
 public:
  InProcessChannel(std::string name, wire::ParameterServerIf* service)
      : name_(std::move(name)), service_(*service) {}

  // Receive does the work: calls of one thread cannot overlap.
  Outcome Send(const DataCall&, Deadline) override { return {}; }

  Outcome Receive(DataCall& call, Deadline) override {
    return Answer(CallName(call.kind), [&] {
      switch (call.kind) {
        case CallKind::kPush: service_.push(call.reply.push, call.request.push); break;
        case CallKind::kAssign: service_.assign(call.reply.push, call.assign); break;
        case CallKind::kPull: service_.pull(call.reply.pull, call.request.pull); break;
        case CallKind::kStep: service_.step(call.reply, call.request); break;
      }
    });
  }

  Outcome Call(absl::string_view method, absl::FunctionRef<void(wire::ParameterServerIf&)> body,
               Deadline) override {
    return Answer(method, [&] { body(service_); });
  }

 private:
  // Runs `body`, which calls the service; converts an exception to an outcome.
  template <typename Body>
  Outcome Answer(absl::string_view method, const Body& body) {
    try {
      body();
    } catch (const wire::ServerError& error) {
      return {Progress::kAnswered, Annotate(FromServerError(error), Context(method))};
    } catch (const std::exception& error) {
      // The service should throw only ServerError; after another exception the call may have run
      // partly.
      return {Progress::kUnknown, Internal(Context(method), ": ", error.what())};
    }
    return {};
  }

  std::string Context(absl::string_view method) const {
    return absl::StrCat(method, " to ", name_);
  }

  const std::string name_;
  wire::ParameterServerIf& service_;
};

class InProcess : public ServerLink {
 public:
  InProcess(std::string name, wire::ParameterServerIf* service)
      : channel_(std::move(name), service) {}

  Outcome Take(Deadline, Channel** channel) override {
    *channel = &channel_;
    return {};
  }
  void Release(Channel*) override {}
  void Discard(Channel*) override {}
  bool in_process() const override { return true; }

 private:
  InProcessChannel channel_;
};

}  // namespace

absl::string_view CallName(CallKind kind) {
  switch (kind) {
    case CallKind::kPush: return "push";
    case CallKind::kAssign: return "assign";
    case CallKind::kPull: return "pull";
    case CallKind::kStep: return "step";
  }
  return "call";
}

std::unique_ptr<ServerLink> InProcessLink(std::string name, wire::ParameterServerIf* service) {
  return std::make_unique<InProcess>(std::move(name), service);
}

}  // namespace cairn
