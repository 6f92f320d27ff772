#include "tests/simulator/network.h"

#include <algorithm>
#include <utility>

#include "common/hash.h"

namespace cairn::simulator {
namespace {

// A broken connection loses the request (kRequestLost), or the reply (up to kAnswerLost), or
// delivers the request up to kLatest later, when the caller already uses another connection.
constexpr double kRequestLost = 1.0 / 3, kAnswerLost = 2.0 / 3;
constexpr Nanos kLatest = 3 * kSecond;

absl::Status Reset() { return absl::UnavailableError("the connection was reset"); }

}  // namespace

Network::Network(const Options& options, Observer* observer)
    : options_(options), observer_(*observer), random_(options.seed, 2) {}

void Network::Part(Nanos until, uint64_t which, int64_t one_in) {
  std::erase_if(partitions_, [now = Scheduler::Current().now()](const Partition& partition) {
    return partition.until <= now;
  });
  partitions_.push_back({until, which, one_in});
  ++observer_.partitions;
}

Nanos Network::Delay() {
  const double mean = static_cast<double>(options_.latency);
  return static_cast<Nanos>(mean * (0.7 + 0.3 * random_.Exponential()));
}

Nanos Network::Blocked(int32_t worker, int32_t server) const {
  const Nanos now = Scheduler::Current().now();
  Nanos blocked = 0;
  for (const Partition& partition : partitions_) {
    const auto in = [&](uint64_t who) {
      return MixBits(partition.which + who) % static_cast<uint64_t>(partition.one_in) == 0;
    };
    if (partition.until > now && in(2 * uint64_t(worker)) && in(2 * uint64_t(server) + 1)) {
      blocked = std::max(blocked, partition.until - now);
    }
  }
  return blocked;
}

CallPtr Network::NewCall(const Process& process, size_t slot, int32_t server) {
  auto call = std::make_shared<Call>();
  call->number = ++calls_;
  call->worker = process.worker;
  call->slot = slot;
  call->server = server;
  return call;
}

void Network::Send(CallPtr call) {
  observer_.Attempt();
  Nanos delay = Delay() + Blocked(call->worker, call->server);
  Scheduler& scheduler = Scheduler::Current();
  if (resets_ > 0 && random_.Chance(resets_)) {
    const double kind = random_.Unit();
    if (kind < kRequestLost || kind >= kAnswerLost) {
      ++observer_.resets;
      scheduler.In(delay, [this, call] { Conclude(call, Call::Fate::kBroken, Reset()); });
    }
    if (kind < kRequestLost) return;
    if (kind >= kAnswerLost) {
      ++observer_.late;
      delay += random_.Below(kLatest);
    }
  }
  scheduler.In(delay, [this, call = std::move(call)] { Arrive(call); });
}

void Network::Arrive(CallPtr call) {
  if (server(call->server).Receive(call)) return;
  call->fate = Call::Fate::kBroken;
  call->broken = Reset();
  Answered(std::move(call));
}

void Network::Answered(CallPtr call) {
  // Copies the outcome, because the caller may have given up on the call already.
  const Call::Fate fate = call->fate;
  call->fate = Call::Fate::kUnderWay;
  const Nanos delay = Delay() + Blocked(call->worker, call->server);
  const bool lost = fate == Call::Fate::kAnswered && resets_ > 0 && random_.Chance(resets_ / 3);
  if (lost) ++observer_.replies_lost;
  Scheduler::Current().In(delay, [this, call = std::move(call), fate, lost] {
    if (lost) return Conclude(call, Call::Fate::kBroken, Reset());
    Conclude(call, fate, fate == Call::Fate::kBroken ? call->broken : absl::OkStatus());
  });
}

void Network::Conclude(const CallPtr& call, Call::Fate fate, absl::Status why) {
  if (call->fate != Call::Fate::kUnderWay) return;
  call->fate = fate;
  call->broken = std::move(why);
  if (call->waited_for) Scheduler::Current().Wake(call->waiter);
}

}  // namespace cairn::simulator
