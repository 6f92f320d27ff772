// An Engine without storage or optimizers, for tests of the wire: a variable is the bytes that were
// last assigned or pushed to it. Calls that are not about variables do nothing.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "ps_server/core/statistics.h"
#include "ps_server/engine/engine.h"
#include "thrift/ParameterServer.h"
#include "thrift/errors.h"

namespace cairn {

struct FakeEngineOptions {
  // Pushed bytes are counted, not kept, and pulls return views of the variable: only the cost of
  // the wire remains. No assign may then run during a pull.
  bool only_wire = false;
  std::function<void(const wire::PushItem&)> on_push;  // receives every pushed item; thread safe
  int64_t message_budget_bytes = int64_t{8} << 30;
};

// Thread safety: every method may be called from several threads at once.
class FakeEngine : public Engine, private wire::ParameterServerNull {
 public:
  explicit FakeEngine(FakeEngineOptions options = {}) : options_(options) {}

  wire::ParameterServerIf& service() override { return *this; }

  absl::Status AcquireMessage(int64_t bytes) override {
    const absl::MutexLock lock(&mutex_);
    if (message_bytes_ + bytes > options_.message_budget_bytes) {
      return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                            "a message needs ", bytes, " bytes beyond ", message_bytes_,
                            "; the budget is ", options_.message_budget_bytes)),
                        wire::ErrorReason::MEMORY_BUDGET);
    }
    message_bytes_ += bytes;
    peak_message_bytes_ = std::max(peak_message_bytes_, message_bytes_);
    return absl::OkStatus();
  }
  void ReleaseMessage(int64_t bytes) override {
    const absl::MutexLock lock(&mutex_);
    message_bytes_ -= bytes;
  }
  EngineStatistics ReadStatistics(StatisticsDetail) const override { return {}; }
  absl::Status failure() const override { return absl::OkStatus(); }
  int32_t live_workers() const override { return 0; }
  absl::Status Close() override { return absl::OkStatus(); }

  int64_t message_bytes() const {
    const absl::MutexLock lock(&mutex_);
    return message_bytes_;
  }
  int64_t peak_message_bytes() const {
    const absl::MutexLock lock(&mutex_);
    return peak_message_bytes_;
  }
  int64_t calls() const { return calls_.load(); }
  int64_t pushed_bytes() const { return pushed_bytes_.load(); }

 private:
  static wire::ServerState State() {
    wire::ServerState state;
    state.__set_boot_id(1);
    return state;
  }

  void hello(wire::HelloReply& reply, const wire::HelloRequest& request) override {
    ++calls_;
    if (request.protocol_version != 1) {
      throw ToServerError(absl::FailedPreconditionError(
          absl::StrCat("protocol version ", request.protocol_version, "; this server speaks 1")));
    }
    reply.__set_protocol_version(1);
    reply.__set_state(State());
    reply.__set_server_count(1);
    reply.__set_durability("off");
  }
  void heartbeat(wire::ServerState& reply, const wire::Caller&) override { Touch(reply); }
  void flush(wire::ServerState& reply, const wire::Caller&) override { Touch(reply); }
  void drop_job(wire::ServerState& reply, const wire::Caller&) override {
    Touch(reply);
    const absl::MutexLock lock(&mutex_);
    variables_.clear();
  }
  void create_variables(wire::ServerState& reply, const wire::Caller&,
                        const std::vector<wire::VariableSpec>& specs) override {
    Touch(reply);
    const absl::MutexLock lock(&mutex_);
    for (const wire::VariableSpec& spec : specs) variables_.try_emplace(spec.name);
  }
  void push(wire::PushReply& reply, const wire::PushRequest& request) override {
    Store(reply, request.items);
  }
  void assign(wire::PushReply& reply, const wire::AssignRequest& request) override {
    Store(reply, request.items);
  }
  void pull(wire::PullReply& reply, const wire::PullRequest& request) override {
    ++calls_;
    reply.__set_state(State());
    reply.items.resize(request.items.size());
    const absl::MutexLock lock(&mutex_);
    for (size_t i = 0; i < request.items.size(); ++i) {
      const Payload& stored = Find(request.items[i].variable);
      reply.items[i].__set_dtype(wire::DType::FLOAT32);
      reply.items[i].values =
          options_.only_wire ? Payload::View(stored.data(), stored.size()) : stored;
    }
    reply.__isset.items = true;
  }
  void step(wire::StepReply& reply, const wire::StepRequest& request) override {
    push(reply.push, request.push);
    pull(reply.pull, request.pull);
    reply.__isset.push = reply.__isset.pull = true;
  }
  void describe(wire::DescribeReply& reply, const wire::DescribeRequest&) override {
    ++calls_;
    reply.__set_state(State());
    const absl::MutexLock lock(&mutex_);
    for (const auto& [name, bytes] : variables_) {
      wire::VariableInfo info;
      info.spec.__set_name(name);
      reply.variables.push_back(std::move(info));
    }
    reply.__isset.variables = true;
  }
  void scan(wire::ScanReply& reply, const wire::ScanRequest& request) override {
    ++calls_;
    reply.__set_state(State());
    const absl::MutexLock lock(&mutex_);
    reply.__set_values(Find(request.variable));
  }

  void Touch(wire::ServerState& reply) {
    ++calls_;
    reply = State();
  }
  template <typename Item>
  void Store(wire::PushReply& reply, const std::vector<Item>& items) {
    ++calls_;
    reply.__set_state(State());
    reply.items.resize(items.size());
    reply.__isset.items = true;
    for (size_t i = 0; i < items.size(); ++i) {
      pushed_bytes_ += static_cast<int64_t>(items[i].values.size());
      reply.items[i].__set_version(++version_);
      if constexpr (std::is_same_v<Item, wire::PushItem>) {
        if (options_.on_push != nullptr) options_.on_push(items[i]);
        if (options_.only_wire) continue;
      }
      const absl::MutexLock lock(&mutex_);
      Find(items[i].variable) = Payload::Copy(items[i].values.data(), items[i].values.size());
    }
  }
  Payload& Find(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = variables_.find(name);
    if (found == variables_.end()) {
      throw ToServerError(absl::NotFoundError(absl::StrCat("no variable \"", name, "\"")));
    }
    return found->second;
  }

  const FakeEngineOptions options_;
  std::atomic<int64_t> calls_ = 0;
  std::atomic<int64_t> version_ = 0;
  std::atomic<int64_t> pushed_bytes_ = 0;
  mutable absl::Mutex mutex_;
  int64_t message_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t peak_message_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, Payload> variables_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn
