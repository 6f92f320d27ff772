#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "tests/support/known_pushes.h"
#include "tests/support/soak_worker.h"

namespace cairn::test {
namespace {

class PushingWorker : public SoakWorker {
 public:
  using SoakWorker::SoakWorker;

 protected:
  std::vector<VariableSpec> Variables() const override { return KnownVariables(); }
  std::vector<Work> Threads() override;

 private:
  bool steps() const { return options_.consistency.mode == ConsistencyMode::kSsp; }
  absl::Status PushUntilStopped();
  absl::Status PushNext(KnownPush& push);
  absl::Status StepUntilStopped();
  absl::Status WatchUntilStopped();
  absl::Status SeeLast();

  absl::Mutex order_;
};

std::vector<SoakWorker::Work> PushingWorker::Threads() {
  std::vector<Work> threads;
  const Work push = [this] { return PushUntilStopped(); };
  if (steps()) threads.emplace_back([this] { return StepUntilStopped(); });
  if (!options_.ordered) threads.insert(threads.end(), {push, push});
  if (!steps()) threads.push_back(push);
  if (!steps() && options_.ordered) threads.push_back(push);
  if (options_.ordered) threads.emplace_back([this] { return WatchUntilStopped(); });
  return threads;
}

absl::Status PushingWorker::PushNext(KnownPush& push) {
  if (!options_.ordered) {
    const int64_t number = ++begun_;
    RETURN_IF_ERROR(client().Push(push.Make(options_.worker, number), "", Patience()));
    NoteAcknowledged(begun_.load());
    return absl::OkStatus();
  }
  absl::MutexLock lock(&order_);
  const int64_t number = begun_ + 1;
  NoteBegun(number);
  RETURN_IF_ERROR(
      client().Push(push.Make(options_.worker, number), absl::StrCat(number), Patience()));
  begun_ = number;
  NoteAcknowledged(number);
  return absl::OkStatus();
}

absl::Status PushingWorker::PushUntilStopped() {
  KnownPush push;
  while (!Stopped()) RETURN_IF_ERROR(PushNext(push));
  return absl::OkStatus();
}

absl::Status PushingWorker::StepUntilStopped() {
  KnownPush push;
  RETURN_IF_ERROR(client().Step({}, "", {}, Patience()));
  while (!Stopped()) {
    const int64_t number = options_.ordered ? begun_ + 1 : ++begun_;
    if (options_.ordered) NoteBegun(number);
    const std::vector<PushSource> sources = push.Make(options_.worker, number);
    std::vector<PullTarget> targets;
    const std::vector<int64_t> key = {SeenKey(options_.worker, number)};
    float seen = 1;
    if (KnownPush::HasKey(number)) {
      targets.push_back({.variable = "seen",
                         .part = Part::kKeys,
                         .ids = key,
                         .out = AsWritableBytes(absl::MakeSpan(&seen, 1))});
    }
    const std::string position = options_.ordered ? absl::StrCat(number) : "";
    RETURN_IF_ERROR(client().Step(sources, position, targets, Patience()));
    if (seen != 1) return Lost(number, absl::StrCat("counts ", seen, " times after its own step"));
    if (options_.ordered) begun_ = number;
    NoteAcknowledged(options_.ordered ? number : begun_.load());
  }
  return client().EndSteps(Patience());
}

// A worker sees its acknowledged pushes, even those that servers have lost since.
absl::Status PushingWorker::SeeLast() {
  std::vector<int64_t> keys;
  const int64_t last = acknowledged_;
  for (int64_t number = last; number > 0 && number > last - 20; --number) {
    if (KnownPush::HasKey(number)) keys.push_back(SeenKey(options_.worker, number));
  }
  if (keys.empty()) return absl::OkStatus();
  std::vector<float> seen(keys.size());
  RETURN_IF_ERROR(PullInto(client(), "seen", keys, &seen, Patience()));
  for (size_t i = 0; i < seen.size(); ++i) {
    if (seen[i] == 1) continue;
    return Lost(
        keys[i] & 0xffffffffff,
        absl::StrCat("acknowledged to this start or the one before, counts ", seen[i], " times"));
  }
  return absl::OkStatus();
}

absl::Status PushingWorker::WatchUntilStopped() {
  for (int64_t seen = 0; !Stopped(); seen = acknowledged_) {
    AwaitMore(seen);
    RETURN_IF_ERROR(SeeLast());
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<SoakWorker> MakePushingWorker(const SoakWorkerOptions& options) {
  return std::make_unique<PushingWorker>(options);
}

}  // namespace cairn::test
