#include <array>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "tests/support/known_contributions.h"
#include "tests/support/soak_worker.h"

namespace cairn::test {
namespace {

class ContributingWorker : public SoakWorker {
 public:
  using SoakWorker::SoakWorker;

 protected:
  std::vector<VariableSpec> Variables() const override { return ContributionVariables(); }
  std::vector<Work> Threads() override;

 private:
  absl::Status ContributeUntilStopped();
  absl::Status ContributeNext(KnownContribution& contribution);
  absl::Status WatchUntilStopped();
  std::string MoreOfReport() const override {
    return absl::StrCat(",\"untold\":", untold_, ",\"partial\":", partial_);
  }

  // Used by the contributing thread. Contributions that count nowhere, or not on every server,
  // although the worker was not told that they came too late.
  int64_t untold_ = 0, partial_ = 0;
};

std::vector<SoakWorker::Work> ContributingWorker::Threads() {
  return {[this] { return ContributeUntilStopped(); }, [this] { return WatchUntilStopped(); }};
}

absl::Status ContributingWorker::ContributeUntilStopped() {
  KnownContribution contribution;
  // Needed even without other work: it sends the decisions to all servers.
  RETURN_IF_ERROR(client().Step({}, "", {}, Patience()));
  while (!Stopped()) RETURN_IF_ERROR(ContributeNext(contribution));
  return client().EndSteps(Patience());
}

absl::Status ContributingWorker::ContributeNext(KnownContribution& contribution) {
  const int64_t number = begun_ + 1;
  NoteBegun(number);
  const int64_t late_before = client().counters().pushes_late;
  const std::vector<PushSource> sources = contribution.Make(options_.worker, number);
  const std::vector<int64_t> key = {SeenKey(options_.worker, number)};
  std::array<float, kKnownServers> times = {};
  std::array<std::string, kKnownServers> names;
  std::vector<PullTarget> targets;
  for (int32_t s = 0; s < kKnownServers; ++s) {
    names[s] = absl::StrCat("once", s);
    targets.push_back({.variable = names[s],
                       .part = Part::kKeys,
                       .ids = key,
                       .out = AsWritableBytes(absl::MakeSpan(&times[s], 1))});
  }
  RETURN_IF_ERROR(client().Step(sources, absl::StrCat(number), targets, Patience()));
  begun_ = number;
  NoteAcknowledged(number);
  // Contributions of an earlier start may be recomputed for steps that no worker waits for yet.
  if (number <= begun_before_) return absl::OkStatus();
  const bool late = client().counters().pushes_late > late_before;
  int32_t counted = 0;
  for (int32_t s = 0; s < kKnownServers; ++s) {
    if (times[s] == 0) continue;
    ++counted;
    if (!late && IsOnce(times[s])) continue;
    return Lost(number, absl::StrCat(late ? "is late, but " : "", "moved its key on ps:", s, " by ",
                                     times[s]));
  }
  // The worker's lease had ended meanwhile, so other workers continued without it.
  if (!late && counted < kKnownServers) ++(counted == 0 ? untold_ : partial_);
  return absl::OkStatus();
}

// Checks that nothing counts twice, or partly.
absl::Status ContributingWorker::WatchUntilStopped() {
  for (int64_t seen = 0; !Stopped(); seen = acknowledged_) {
    AwaitMore(seen);
    std::vector<int64_t> numbers;
    const int64_t last = acknowledged_;
    for (int64_t n = last; n > 0 && n > last - 20; --n) numbers.push_back(n);
    if (numbers.empty()) continue;
    for (int32_t s = 0; s < kKnownServers; ++s) {
      std::vector<float> times;
      RETURN_IF_ERROR(TimesCounted(client(), s, options_.worker, numbers, Patience(), &times));
      for (size_t i = 0; i < times.size(); ++i) {
        if (times[i] == 0 || IsOnce(times[i])) continue;
        return Lost(numbers[i], absl::StrCat("moved its key on ps:", s, " by ", times[i]));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<SoakWorker> MakeContributingWorker(const SoakWorkerOptions& options) {
  return std::make_unique<ContributingWorker>(options);
}

}  // namespace cairn::test
