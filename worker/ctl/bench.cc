#include "worker/ctl/cluster_commands.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/exit_status.h"
#include "common/host_name.h"
#include "common/log.h"
#include "common/start_thread.h"
#include "common/status.h"
#include "thrift/client/wire_client.h"
#include "worker/ctl/human_text.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kSmall[] = "small";
constexpr char kLarge[] = "large";
constexpr size_t kSmallFloats = 16;
constexpr size_t kFloatsPerMib = (size_t{1} << 20) / sizeof(float);
constexpr int64_t kMostMib = 256;
constexpr double kMostSeconds = 600;

// The durations of calls, in seconds.
class Times {
 public:
  void Add(absl::Duration took) { seconds_.push_back(absl::ToDoubleSeconds(took)); }
  double total() const {
    double total = 0;
    for (const double one : seconds_) total += one;
    return total;
  }
  double PerSecond(size_t bytes) const {
    return static_cast<double>(bytes) * static_cast<double>(seconds_.size()) / total();
  }
  double Quantile(double share) {
    const size_t last = seconds_.size() - 1;
    const auto at = static_cast<ptrdiff_t>(std::ceil(share * static_cast<double>(last)));
    std::nth_element(seconds_.begin(), seconds_.begin() + at, seconds_.end());
    return seconds_[static_cast<size_t>(at)];
  }

 private:
  std::vector<double> seconds_;
};

// One server, with variables that only the bench uses. Thread safety: none.
class BenchedServer {
 public:
  BenchedServer(const Target& target, size_t server, std::string job, size_t floats)
      : target_(target), server_(server), gradient_(floats, 1.0f), pulled_(floats) {
    caller_.job = std::move(job);
  }
  // A server keeps an abandoned job until it needs the memory. So if the connection is broken, the
  // drop is tried again on a new one.
  ~BenchedServer() {
    if (!made_) return;
    const absl::Status dropped = Drop();
    if (!dropped.ok()) LOG(WARNING) << "job " << caller_.job << " stays: " << dropped.message();
  }
  BenchedServer(const BenchedServer&) = delete;
  BenchedServer& operator=(const BenchedServer&) = delete;

  absl::Status Make() {
    ASSIGN_OR_RETURN(client_, target_.Connect(server_, CallDeadline()));
    wire::Optimizer sgd;
    sgd.learning_rate.type = "constant";
    sgd.learning_rate.arguments["learning_rate"] = 1;
    wire::VariableSpec small;
    small.name = kSmall;
    small.shape = {static_cast<int64_t>(kSmallFloats)};
    small.optimizer = sgd;
    wire::VariableSpec large = small;
    large.name = kLarge;
    // Rows of 4 KiB, so that the server divides the variable into stripes, as it does with a
    // model's.
    large.shape = {static_cast<int64_t>(gradient_.size() / 1024), 1024};
    made_ = true;
    wire::ServerState state;
    return client_->Call("create_variables", CallDeadline(), [&](WireClient::Stub& stub) {
      stub.create_variables(state, caller_, {small, large});
    });
  }

  absl::Status RoundTrip() {
    wire::PullReply reply;
    return Pull(kSmall, &reply);
  }

  absl::Status Push() {
    wire::PushRequest request;
    request.caller = caller_;
    wire::PushItem& item = request.items.emplace_back();
    item.variable = kLarge;
    item.values = Payload::ViewOf(absl::MakeConstSpan(gradient_));
    wire::PushReply reply;
    ++pushes_;
    return client_->Call("push", CallDeadline(),
                         [&](WireClient::Stub& stub) { stub.push(reply, request); });
  }

  absl::Status Pull() {
    const auto target = absl::MakeSpan(reinterpret_cast<std::byte*>(pulled_.data()),
                                       pulled_.size() * sizeof(float));
    client_->ReadPayloadsInto({&target, 1});
    wire::PullReply reply;
    RETURN_IF_ERROR(Pull(kLarge, &reply));
    if (reply.items.size() == 1 && reply.items[0].values.data() == target.data()) {
      return absl::OkStatus();
    }
    return DataLoss(target_.ServerName(server_), ": a pull does not have the variable's size");
  }

  // Every push adds 1 to every value.
  absl::Status Verify() {
    RETURN_IF_ERROR(Pull());
    const auto want = -static_cast<float>(pushes_);
    for (const float value : pulled_) {
      if (value == want) continue;
      return DataLoss(target_.ServerName(server_), ": a value is ", value, " after ", pushes_,
                      " pushes of 1: not ", want);
    }
    return absl::OkStatus();
  }

  std::string name() const { return target_.ServerName(server_); }
  size_t index() const { return server_; }
  size_t bytes() const { return gradient_.size() * sizeof(float); }

 private:
  Deadline CallDeadline() const { return Deadline::In(target_.timeout); }

  absl::Status Pull(const char* variable, wire::PullReply* reply) {
    wire::PullRequest request;
    request.caller = caller_;
    request.items.emplace_back().variable = variable;
    return client_->Call("pull", CallDeadline(),
                         [&](WireClient::Stub& stub) { stub.pull(*reply, request); });
  }

  absl::Status Drop() {
    if (client_ == nullptr || !client_->usable()) {
      ASSIGN_OR_RETURN(client_, target_.Connect(server_, CallDeadline()));
    }
    wire::ServerState state;
    return client_->Call("drop_job", CallDeadline(),
                         [&](WireClient::Stub& stub) { stub.drop_job(state, caller_); });
  }

  const Target& target_;
  const size_t server_;
  wire::Caller caller_;
  std::unique_ptr<WireClient> client_;
  std::vector<float> gradient_;
  std::vector<float> pulled_;
  int64_t pushes_ = 0;
  bool made_ = false;
};

// Repeats the call for about `length`. The first call warms up and is not counted.
absl::StatusOr<Times> Measure(absl::Duration length, const std::function<absl::Status()>& call) {
  RETURN_IF_ERROR(call());
  Times times;
  for (const Deadline end = Deadline::In(length);;) {
    const absl::Duration begin = MonotonicNow();
    RETURN_IF_ERROR(call());
    times.Add(MonotonicNow() - begin);
    if (end.Expired()) return times;
  }
}

using Servers = std::vector<std::unique_ptr<BenchedServer>>;

// The bytes per second of all servers together.
absl::StatusOr<double> MeasureTogether(const Servers& servers, absl::Duration length,
                                       absl::Status (BenchedServer::*call)()) {
  std::vector<absl::StatusOr<Times>> times(servers.size(), absl::UnknownError("not measured"));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < servers.size(); ++i) {
    absl::StatusOr<std::thread> thread = StartThread(
        [&, i] { times[i] = Measure(length, [&] { return (servers[i].get()->*call)(); }); });
    if (thread.ok()) {
      threads.push_back(*std::move(thread));
    } else {
      times[i] = thread.status();
    }
  }
  for (std::thread& thread : threads) thread.join();
  double rate = 0;
  for (size_t i = 0; i < servers.size(); ++i) {
    RETURN_IF_ERROR(times[i].status());
    rate += times[i]->PerSecond(servers[i]->bytes());
  }
  return rate;
}

std::string RateText(double bytes_per_second) {
  return absl::StrCat(BytesText(static_cast<int64_t>(bytes_per_second)), "/s");
}

absl::Status CheckOptions(const BenchOptions& options) {
  if (options.mib < 1 || options.mib > kMostMib) {
    return InvalidArgument("--mib is ", options.mib, ": 1 to ", kMostMib, " are allowed");
  }
  if (!(options.seconds > 0 && options.seconds <= kMostSeconds)) {
    return InvalidArgument("--seconds is ", options.seconds, ": above 0, at most ", kMostSeconds,
                           " are allowed");
  }
  return absl::OkStatus();
}

// Measures one server alone: adds a row to the table and an object to the answer.
absl::StatusOr<Json> BenchOne(BenchedServer& server, const Target& target, absl::Duration length,
                              TextTable* table) {
  ASSIGN_OR_RETURN(Times trips, Measure(length, [&] { return server.RoundTrip(); }));
  ASSIGN_OR_RETURN(const Times pushes, Measure(length, [&] { return server.Push(); }));
  ASSIGN_OR_RETURN(const Times pulls, Measure(length, [&] { return server.Pull(); }));
  const double median = trips.Quantile(0.5);
  const double p99 = trips.Quantile(0.99);
  const double pushed = pushes.PerSecond(server.bytes());
  const double pulled = pulls.PerSecond(server.bytes());
  table->Add({server.name(), absl::StrFormat("%.0f us", median * 1e6),
              absl::StrFormat("%.0f us", p99 * 1e6), RateText(pushed), RateText(pulled)});
  return Json{{"server", absl::StrCat("ps:", server.index())},
              {"address", target.members.addresses[server.index()]},
              {"round_trip_seconds", {{"median", median}, {"p99", p99}}},
              {"push_bytes_per_second", pushed},
              {"pull_bytes_per_second", pulled}};
}

}  // namespace

absl::StatusOr<Answer> RunBench(const BenchOptions& options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return AsBadInput(status);
  ASSIGN_OR_RETURN(Target target, ResolveServers(options.target));
  RETURN_IF_ERROR(target.LearnMembers());
  const absl::Duration length = absl::Seconds(options.seconds);
  const std::string job = JobOfCommand("bench");
  Servers servers;
  for (const int32_t server : target.members.Live()) {
    servers.push_back(
        std::make_unique<BenchedServer>(target, static_cast<size_t>(server), job,
                                        static_cast<size_t>(options.mib) * kFloatsPerMib));
    RETURN_IF_ERROR(servers.back()->Make());
  }
  Answer answer;
  answer.json = {{"bytes", servers.front()->bytes()}, {"servers", Json::array()}};
  TextTable table({"server", "round trip", "99 %", "push", "pull"});
  for (const auto& server : servers) {
    ASSIGN_OR_RETURN(Json one, BenchOne(*server, target, length, &table));
    answer.json["servers"].push_back(std::move(one));
  }
  if (servers.size() > 1) {
    ASSIGN_OR_RETURN(const double pushed, MeasureTogether(servers, length, &BenchedServer::Push));
    ASSIGN_OR_RETURN(
        const double pulled,
        MeasureTogether(servers, length,
                        static_cast<absl::Status (BenchedServer::*)()>(&BenchedServer::Pull)));
    table.Add({"all at once", "", "", RateText(pushed), RateText(pulled)});
    answer.json["together"] = {{"push_bytes_per_second", pushed},
                               {"pull_bytes_per_second", pulled}};
  }
  for (const auto& server : servers) RETURN_IF_ERROR(server->Verify());
  answer.text = absl::StrCat("From ", HostName(), ", ", options.mib,
                             " MiB a call, one connection a server:\n", table.Text());
  return answer;
}

}  // namespace cairn
