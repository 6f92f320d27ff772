#include "tests/support/fake_service.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/shape.h"
#include "ps_server/core/statistics.h"
#include "ps_server/engine/engine.h"
#include "thrift/convert.h"
#include "thrift/errors.h"

namespace cairn::test {
namespace {

class EngineOfService final : public Engine {
 public:
  explicit EngineOfService(wire::ParameterServerIf& service) : service_(service) {}

  wire::ParameterServerIf& service() override { return service_; }
  absl::Status AcquireMessage(int64_t) override { return absl::OkStatus(); }
  void ReleaseMessage(int64_t) override {}
  EngineStatistics ReadStatistics(StatisticsDetail) const override { return {}; }
  absl::Status failure() const override { return absl::OkStatus(); }
  int32_t live_workers() const override { return 0; }
  absl::Status Close() override { return absl::OkStatus(); }

 private:
  wire::ParameterServerIf& service_;
};

}  // namespace

void Refuse(wire::ErrorCode::type code, wire::ErrorReason::type reason, const std::string& message,
            int64_t replay_after) {
  throw [&] {
    wire::ServerError error;
    error.code = code;
    error.reason = reason;
    error.message = message;
    error.replay_after = replay_after;
    return error;
  }();
}

// The hooks run without the lock, so that a hook that blocks delays only its own call.
class FakeService::Scope {
 public:
  Scope(FakeService* fake, const char* method) : fake_(*fake), method_(method) {
    {
      absl::MutexLock lock(&fake_.mutex_);
      ++fake_.calls_[method_];
    }
    if (fake_.before) fake_.before(method_);
    fake_.mutex_.Lock();
  }
  ~Scope() noexcept(false) {
    fake_.mutex_.Unlock();
    if (fake_.after && std::uncaught_exceptions() == exceptions_) fake_.after(method_);
  }

 private:
  FakeService& fake_;
  const char* const method_;
  const int exceptions_ = std::uncaught_exceptions();
};

FakeService::FakeService(int32_t server_index, int32_t server_count)
    : engine_(std::make_unique<EngineOfService>(*this)),
      index_(server_index),
      count_(server_count) {}

FakeService::~FakeService() = default;

void FakeService::Reboot(int64_t durable) {
  absl::MutexLock lock(&mutex_);
  ++boot_id_;
  for (auto& [id, worker] : workers_) worker.applied = std::min(worker.applied, durable);
}

void FakeService::Crash() {
  absl::MutexLock lock(&mutex_);
  ++boot_id_;
  variables_ = durable_variables_;
  workers_ = durable_workers_;
}

void FakeService::Epoch() {
  for (auto& [id, worker] : workers_) worker.durable = worker.applied;
  durable_variables_ = variables_;
  durable_workers_ = workers_;
}

void FakeService::AddMember(int32_t index, const std::string& address) {
  absl::MutexLock lock(&mutex_);
  wire::Member member;
  member.index = index;
  member.address = address;
  members_.members.push_back(member);
  members_.server_count = std::max(count_, index + 1);
  ++members_.version;
}

void FakeService::RemoveMember(int32_t index) {
  absl::MutexLock lock(&mutex_);
  wire::Member member;
  member.index = index;
  member.left = true;
  members_.members.push_back(member);
  members_.server_count = std::max({count_, members_.server_count, index + 1});
  ++members_.version;
}

void FakeService::Fence(int32_t worker) {
  absl::MutexLock lock(&mutex_);
  workers_[worker].incarnation = ++incarnations_;
}

int64_t FakeService::calls(absl::string_view method) const {
  absl::MutexLock lock(&mutex_);
  const auto found = calls_.find(std::string(method));
  return found == calls_.end() ? 0 : found->second;
}

int64_t FakeService::applied(int32_t worker) const {
  absl::MutexLock lock(&mutex_);
  const auto found = workers_.find(worker);
  return found == workers_.end() ? 0 : found->second.applied;
}

int64_t FakeService::boot_id() const {
  absl::MutexLock lock(&mutex_);
  return boot_id_;
}

std::vector<int64_t> FakeService::sequences() const {
  absl::MutexLock lock(&mutex_);
  return sequences_;
}

FakeService::Worker* FakeService::Admit(const wire::Caller& caller) {
  if (caller.boot_id != 0 && caller.boot_id != boot_id_) {
    Refuse(wire::ErrorCode::FAILED_PRECONDITION, wire::ErrorReason::REBOOTED, "rebooted");
  }
  if (caller.worker < 0) return nullptr;
  Worker& worker = workers_[caller.worker];
  if (caller.incarnation < worker.incarnation) {
    Refuse(wire::ErrorCode::FAILED_PRECONDITION, wire::ErrorReason::FENCED,
           absl::StrCat("incarnation ", worker.incarnation, " has taken its place"));
  }
  if (caller.through > worker.applied) {
    worker.applied = caller.through;
    worker.position.clear();
  }
  return &worker;
}

bool FakeService::Begin(Worker* worker, const wire::Sequence& sequence) {
  if (worker == nullptr) return true;
  if (sequence.sequence <= worker->applied) return false;
  if (sequence.after > worker->applied) {
    Refuse(wire::ErrorCode::FAILED_PRECONDITION, wire::ErrorReason::REPLAY, "replay",
           worker->applied);
  }
  worker->applied = sequence.sequence;
  worker->position = sequence.position;
  sequences_.push_back(sequence.sequence);
  return true;
}

void FakeService::State(const wire::Caller& caller, wire::ServerState* state) {
  state->boot_id = boot_id_;
  if (members_.version > 0) state->__set_members_version(members_.version);
  const auto found = workers_.find(caller.worker);
  if (found == workers_.end()) return;
  state->applied = found->second.applied;
  state->durable = keeps_flushed_ ? found->second.durable : state->applied;
}

void FakeService::hello(wire::HelloReply& reply, const wire::HelloRequest& request) {
  const Scope scope(this, "hello");
  reply.protocol_version = protocol_version;
  reply.server_index = answers_as >= 0 ? answers_as.load() : index_;
  reply.server_count = count_;
  reply.durability = "snapshot";
  reply.lease_seconds = lease_seconds;
  reply.max_message_bytes = max_message_bytes;
  reply.incarnation = 0;
  wire::Caller caller;
  caller.worker = request.worker;
  if (request.worker >= 0) {
    Worker& worker = workers_[request.worker];
    const int64_t incarnation = request.incarnation == 0 ? ++incarnations_ : request.incarnation;
    if (incarnation < worker.incarnation) {
      Refuse(wire::ErrorCode::FAILED_PRECONDITION, wire::ErrorReason::FENCED, "fenced at hello");
    }
    const bool is_new = incarnation > worker.incarnation;
    worker.incarnation = reply.incarnation = incarnation;
    reply.position = worker.position;
    if (is_new) Epoch();
  }
  State(caller, &reply.state);
}

void FakeService::heartbeat(wire::ServerState& state, const wire::Caller& caller) {
  const Scope scope(this, "heartbeat");
  Admit(caller);
  State(caller, &state);
}

void FakeService::leave(wire::ServerState& state, const wire::Caller& caller) {
  const Scope scope(this, "leave");
  Admit(caller);
  Epoch();
  State(caller, &state);
}

void FakeService::create_variables(wire::ServerState& state, const wire::Caller& caller,
                                   const std::vector<wire::VariableSpec>& specs) {
  const Scope scope(this, "create_variables");
  Admit(caller);
  for (const wire::VariableSpec& spec : specs) {
    const auto found = variables_.find(spec.name);
    if (found != variables_.end() && !(found->second.wire == spec)) {
      Refuse(wire::ErrorCode::ALREADY_EXISTS, wire::ErrorReason::SPEC_CONFLICT,
             absl::StrCat("exists: ", found->second.wire.shape.size(),
                          " axes; wanted: ", spec.shape.size(), " axes"));
    }
    Stored stored{.wire = spec, .spec = FromWire(spec, index_, count_).value()};
    stored.width = static_cast<size_t>(
        stored.spec.kind == VariableKind::kEmbedding ? spec.shape[0] : RowWidth(spec.shape));
    durable_variables_.emplace(spec.name, stored);
    variables_.emplace(spec.name, std::move(stored));
  }
  State(caller, &state);
}

template <typename Item>
FakeService::Stored& FakeService::Find(const Item& item) {
  const auto found = variables_.find(item.variable);
  if (found == variables_.end()) {
    Refuse(wire::ErrorCode::NOT_FOUND, wire::ErrorReason::NONE,
           absl::StrCat("no variable ", item.variable));
  }
  return found->second;
}

template <typename Item>
std::vector<int64_t> FakeService::RowsOf(const Stored& stored, const Item& item) const {
  std::vector<int64_t> rows;
  if (item.selection == wire::Selection::WHOLE) {
    const DenseShard& shard = stored.spec.shards.at(item.shard);
    if (shard.ps != index_) {
      Refuse(wire::ErrorCode::INVALID_ARGUMENT, wire::ErrorReason::NONE, "shard lives elsewhere");
    }
    for (int64_t r = 0; r < shard.rows; ++r) rows.push_back(shard.first_row + r);
    return rows;
  }
  const auto ids = item.ids.template As<int64_t>();
  rows.assign(ids.begin(), ids.end());
  for (const int64_t row : rows) {
    bool here = false;
    if (item.selection == wire::Selection::KEYS) {
      const auto& buckets = stored.spec.bucket_ps;
      here = buckets[BucketOfKey(row, static_cast<uint32_t>(buckets.size()))] == index_;
    } else {
      const DenseShard& shard = stored.spec.shards.at(item.shard);
      here = shard.ps == index_ && row >= shard.first_row && row < shard.first_row + shard.rows;
    }
    if (!here) {
      Refuse(wire::ErrorCode::INVALID_ARGUMENT, wire::ErrorReason::NONE,
             absl::StrCat("row ", row, " lives elsewhere"));
    }
  }
  return rows;
}

void FakeService::ApplyPush(const wire::PushRequest& request, wire::PushReply* reply) {
  Worker* const worker = Admit(request.caller);
  reply->repeated = !Begin(worker, request.sequence);
  reply->items.clear();
  for (const wire::PushItem& item : request.items) {
    Stored& stored = Find(item);
    const std::vector<int64_t> rows = RowsOf(stored, item);
    const auto values = item.values.As<float>();
    if (values.size() != rows.size() * stored.width) {
      Refuse(wire::ErrorCode::INVALID_ARGUMENT, wire::ErrorReason::NONE, "values misfit");
    }
    if (!reply->repeated) {
      for (size_t i = 0; i < rows.size(); ++i) {
        std::vector<float>& row = stored.rows[rows[i]];
        row.resize(stored.width);
        for (size_t j = 0; j < stored.width; ++j) row[j] -= values[i * stored.width + j];
      }
      ++stored.version;
    }
    wire::PushedItem pushed;
    pushed.version = stored.version;
    pushed.staleness = item.pulled_version < 0 ? -1 : stored.version - 1 - item.pulled_version;
    reply->items.push_back(pushed);
  }
  State(request.caller, &reply->state);
}

void FakeService::ReadPull(const wire::PullRequest& request, wire::PullReply* reply) {
  Admit(request.caller);
  reply->items.clear();
  for (const wire::PullItem& item : request.items) {
    Stored& stored = Find(item);
    const std::vector<int64_t> rows = RowsOf(stored, item);
    wire::PulledItem pulled;
    pulled.dtype = stored.wire.dtype;
    pulled.version = stored.version;
    pulled.values = Payload::Uninitialized(rows.size() * stored.width * sizeof(float));
    if (!pulled.values.empty()) {
      float* out = pulled.values.MutableAs<float>().data();
      for (const int64_t row : rows) {
        const auto found = stored.rows.find(row);
        for (size_t j = 0; j < stored.width; ++j) {
          *out++ = found == stored.rows.end() ? 0 : found->second[j];
        }
      }
    }
    reply->items.push_back(std::move(pulled));
  }
  State(request.caller, &reply->state);
}

void FakeService::push(wire::PushReply& reply, const wire::PushRequest& request) {
  const Scope scope(this, "push");
  ApplyPush(request, &reply);
}

void FakeService::assign(wire::PushReply& reply, const wire::AssignRequest& request) {
  const Scope scope(this, "assign");
  reply.repeated = !Begin(Admit(request.caller), request.sequence);
  reply.items.clear();
  for (const wire::AssignItem& item : request.items) {
    Stored& stored = Find(item);
    const std::vector<int64_t> rows = RowsOf(stored, item);
    const auto values = item.values.As<float>();
    for (size_t i = 0; i < rows.size() && !reply.repeated; ++i) {
      stored.rows[rows[i]].assign(values.begin() + i * stored.width,
                                  values.begin() + (i + 1) * stored.width);
    }
    reply.items.emplace_back();
    reply.items.back().version = ++stored.version;
    reply.items.back().staleness = -1;
  }
  State(request.caller, &reply.state);
}

void FakeService::pull(wire::PullReply& reply, const wire::PullRequest& request) {
  const Scope scope(this, "pull");
  ReadPull(request, &reply);
}

void FakeService::step(wire::StepReply& reply, const wire::StepRequest& request) {
  const Scope scope(this, "step");
  ApplyPush(request.push, &reply.push);
  ReadPull(request.pull, &reply.pull);
}

void FakeService::describe(wire::DescribeReply& reply, const wire::DescribeRequest& request) {
  const Scope scope(this, "describe");
  Admit(request.caller);
  for (const auto& [name, stored] : variables_) {
    reply.variables.emplace_back();
    reply.variables.back().spec = stored.wire;
  }
  reply.server_index = index_;
  State(request.caller, &reply.state);
}

void FakeService::scan(wire::ScanReply& reply, const wire::ScanRequest& request) {
  const Scope scope(this, "scan");
  Admit(request.caller);
  Stored& stored = Find(request);
  auto at = stored.rows.begin();
  if (!request.cursor.empty()) {
    int64_t last = 0;
    std::memcpy(&last, request.cursor.data(), sizeof last);
    at = stored.rows.upper_bound(last);
  }
  std::vector<int64_t> keys;
  std::vector<float> values;
  // Small pages, so that cursors are used.
  for (; at != stored.rows.end() && keys.size() < 10; ++at) {
    keys.push_back(at->first);
    values.insert(values.end(), at->second.begin(), at->second.end());
  }
  reply.keys = Payload::Copy(keys.data(), keys.size() * sizeof(int64_t));
  reply.values = Payload::Copy(values.data(), values.size() * sizeof(float));
  reply.cursor.clear();
  if (at != stored.rows.end()) {
    reply.cursor.assign(reinterpret_cast<const char*>(&keys.back()), sizeof(int64_t));
  }
  State(request.caller, &reply.state);
}

void FakeService::flush(wire::ServerState& state, const wire::Caller& caller) {
  const Scope scope(this, "flush");
  Admit(caller);
  Epoch();
  State(caller, &state);
}

void FakeService::why(wire::WhyReply& reply, const wire::Caller& caller) {
  const Scope scope(this, "why");
  State(caller, &reply.state);
}

void FakeService::members(wire::Members& reply, const wire::Caller&) {
  const Scope scope(this, "members");
  reply = members_;
}

void FakeService::drop_job(wire::ServerState& state, const wire::Caller& caller) {
  const Scope scope(this, "drop_job");
  Admit(caller);
  variables_.clear();
  workers_.clear();
  Epoch();
  State(caller, &state);
}

}  // namespace cairn::test
