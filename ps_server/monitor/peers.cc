#include "ps_server/monitor/peers.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/run_in_threads.h"
#include "common/status.h"
#include "ps_server/base/bad_alloc.h"
#include "thrift/client/wire_client.h"
#include "thrift/security/client_security.h"

namespace cairn {
namespace {

// Limit on jobs watched at the same time: each costs every server one describe call per second.
constexpr size_t kMaxJobs = 4;
constexpr size_t kMaxThreads = 8;

}  // namespace

// One other server. Its connection stays open while any job is watched.
class Peers::Peer {
 public:
  Peer(int32_t server, std::string address, const PeersOptions& options)
      : server_(server), address_(std::move(address)), options_(options) {}
  int32_t server() const { return server_; }
  const std::string& address() const { return address_; }

  PeerAnswer Ask(const std::string& job) {
    PeerAnswer answer{.server = server_, .address = address_};
    answer.status = TryAsk(job, answer);
    if (!answer.status.ok()) {
      client_.reset();
      answer = {.server = server_, .address = address_, .status = answer.status};
    }
    return answer;
  }
  void Disconnect() { client_.reset(); }

 private:
  absl::Status TryAsk(const std::string& job, PeerAnswer& answer) {
    const Deadline deadline = Deadline::In(kCallTimeout);
    if (client_ != nullptr && (!client_->usable() || client_->PeerClosed())) client_.reset();
    if (client_ == nullptr) RETURN_IF_ERROR(Connect(deadline));
    wire::DescribeRequest request;
    request.with_server = true;
    request.caller.job = job;
    RETURN_IF_ERROR(client_->Call("describe", deadline, [&](WireClient::Stub& stub) {
      stub.describe(answer.described, request);
    }));
    if (answer.described.server_index != server_) {
      return FailedPrecondition(address_, " answers as ps:", answer.described.server_index,
                                ", not as ps:", server_);
    }
    if (server_ == 0) {
      RETURN_IF_ERROR(client_->Call("members", deadline, [&](WireClient::Stub& stub) {
        stub.members(answer.members.emplace(), request.caller);
      }));
    }
    return client_->Call("why", deadline,
                         [&](WireClient::Stub& stub) { stub.why(answer.why, request.caller); });
  }

  absl::Status Connect(Deadline deadline) {
    WireClientOptions options{.peer = absl::StrCat("ps:", server_, " (", address_, ")")};
    ASSIGN_OR_RETURN(options.security, ClientSecurity::Load(options_.security));
    ASSIGN_OR_RETURN(client_, WireClient::Connect(address_, options, deadline));
    return absl::OkStatus();
  }

  const int32_t server_;
  const std::string address_;
  const PeersOptions& options_;
  std::unique_ptr<WireClient> client_;
};

Peers::Peers(PeersOptions options) : options_(std::move(options)) {
  const absl::MutexLock lock(&mutex_);
  members_.addresses = options_.servers;
}

Peers::~Peers() {
  std::thread thread;
  {
    const absl::MutexLock lock(&mutex_);
    stopped_ = true;
    thread = std::move(thread_);
    changed_.SignalAll();
  }
  if (thread.joinable()) thread.join();
}

std::shared_ptr<const std::vector<PeerAnswer>> Peers::Get(const std::string& job,
                                                          const wire::Members& own) {
  const absl::MutexLock lock(&mutex_);
  if (own.version > 0) members_.Take(own);
  if (OthersLocked().empty()) return std::make_shared<std::vector<PeerAnswer>>();
  const absl::Duration now = MonotonicNow();
  const auto found = watched_.find(job);
  if (found == watched_.end() && watched_.size() >= kMaxJobs) return nullptr;
  const bool idle = watched_.empty();
  Watched& watched = watched_[job];
  watched.last = now;
  if (idle) changed_.SignalAll();
  if (!thread_.joinable() && !stopped_) {
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error&) {  // the next call tries again
    }
  }
  return watched.answers;
}

std::vector<std::string> Peers::WatchedJobs() {
  const absl::Duration now = MonotonicNow();
  std::vector<std::string> jobs;
  for (auto at = watched_.begin(); at != watched_.end();) {
    if (now - at->second.last > kWatchDuration) {
      at = watched_.erase(at);
    } else {
      jobs.push_back(at->first);
      ++at;
    }
  }
  return jobs;
}

std::vector<int32_t> Peers::OthersLocked() const {
  std::vector<int32_t> others = members_.Live();
  std::erase(others, options_.self);
  return others;
}

void Peers::UpdatePeers() {
  std::vector<std::shared_ptr<Peer>> peers;
  const absl::MutexLock lock(&mutex_);
  for (const int32_t server : OthersLocked()) {
    const std::string& address = members_.addresses[static_cast<size_t>(server)];
    const auto known = std::find_if(peers_.begin(), peers_.end(), [&](const auto& peer) {
      return peer->server() == server && peer->address() == address;
    });
    peers.push_back(known == peers_.end() ? std::make_shared<Peer>(server, address, options_)
                                          : *known);
  }
  peers_ = std::move(peers);
}

void Peers::TakeMembers(std::vector<PeerAnswer>& answers) {
  const absl::MutexLock lock(&mutex_);
  for (const PeerAnswer& answer : answers) {
    if (answer.members.has_value()) members_.Take(*answer.members);
  }
  std::erase_if(answers, [this](const PeerAnswer& answer) {
    mutex_.AssertHeld();
    return members_.HasLeft(static_cast<size_t>(answer.server));
  });
}

std::vector<PeerAnswer> Peers::AskAll(const std::string& job) {
  UpdatePeers();
  std::vector<PeerAnswer> answers;
  for (const auto& peer : peers_) {
    answers.push_back({.server = peer->server(), .address = peer->address()});
  }
  std::atomic<size_t> next{0};
  const auto ask = [&] {
    for (size_t i = next++; i < peers_.size() && !stopped_; i = next++) {
      const absl::Status status = CatchBadAlloc([&] {
        answers[i] = peers_[i]->Ask(job);
        return absl::OkStatus();
      });
      if (!status.ok()) answers[i].status = status;
    }
  };
  RunInThreads(std::min(peers_.size(), kMaxThreads), ask);
  TakeMembers(answers);
  return answers;
}

void Peers::AskAboutJobs() {
  std::vector<std::string> jobs;
  {
    const absl::MutexLock lock(&mutex_);
    jobs = WatchedJobs();
  }
  for (const std::string& job : jobs) {
    if (stopped_) return;
    auto answers = std::make_shared<const std::vector<PeerAnswer>>(AskAll(job));
    const absl::MutexLock lock(&mutex_);
    const auto found = watched_.find(job);
    if (found != watched_.end()) found->second.answers = std::move(answers);
  }
}

void Peers::Run() {
  for (;;) {
    const absl::Duration begin = MonotonicNow();
    // Without memory the answers stay as they are until the next time.
    CatchBadAlloc([&] {
      AskAboutJobs();
      return absl::OkStatus();
    }).IgnoreError();
    const absl::MutexLock lock(&mutex_);
    if (stopped_) return;
    absl::Duration pause = kInterval - (MonotonicNow() - begin);
    if (watched_.empty()) {
      for (const auto& peer : peers_) peer->Disconnect();
      pause = absl::Minutes(1);
    }
    if (pause > absl::ZeroDuration()) changed_.WaitUntil(&mutex_, Deadline::In(pause));
  }
}

}  // namespace cairn
