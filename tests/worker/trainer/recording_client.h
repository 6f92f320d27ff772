// A PsClient that keeps variables in memory, updates them by SGD with rate 1, and records the
// calls.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "worker/client/ps_client.h"

namespace cairn::test {

// Supports whole dense float32 variables, of any size that a pull asks for. Thread safety: as
// PsClient.
class RecordingClient : public PsClient {
 public:
  // "pull a", "push a 2 @position", "push a 2 @position, pull a"; calls of Step have the prefix
  // "step: ".
  std::vector<std::string> calls() const {
    absl::MutexLock lock(&mutex_);
    return calls_;
  }
  // Every later call fails with `status`.
  void FailWith(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    failure_ = std::move(status);
  }

  std::vector<int32_t> servers() const override { return {0}; }
  int32_t listed_servers() const override { return 1; }
  const std::string& position() const override { return position_; }
  absl::Status Create(absl::Span<const VariableSpec>, Deadline) override {
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<VariableSpec>> Describe(Deadline) override {
    return std::vector<VariableSpec>();
  }
  absl::StatusOr<JobHoldings> Examine(Deadline) override { return JobHoldings(); }
  absl::Status Pull(absl::Span<const PullTarget> targets, Deadline) override {
    return Call({}, "", targets);
  }
  absl::Status Push(absl::Span<const PushSource> sources, absl::string_view position,
                    Deadline) override {
    return Call(sources, position, {});
  }
  absl::Status PushPull(absl::Span<const PushSource> sources, absl::string_view position,
                        absl::Span<const PullTarget> targets, Deadline) override {
    return Call(sources, position, targets);
  }
  absl::Status Step(absl::Span<const PushSource> sources, absl::string_view position,
                    absl::Span<const PullTarget> targets, Deadline, int64_t) override {
    return Call(sources, position, targets, "step: ");
  }
  absl::Status EndStep(absl::Span<const PushSource> sources, absl::string_view position, int64_t,
                       Deadline) override {
    return Call(sources, position, {});
  }
  absl::Status EndSteps(Deadline) override { return absl::OkStatus(); }
  absl::StatusOr<int64_t> LargestStepGap(Deadline) override { return 0; }
  absl::Status Assign(absl::Span<const PushSource>, Deadline) override { return absl::OkStatus(); }
  absl::Status AssignTogether(absl::Span<const PushSource>, absl::string_view, Deadline) override {
    return absl::OkStatus();
  }
  absl::Status Scan(absl::string_view,
                    const std::function<void(int64_t, absl::Span<const std::byte>)>&,
                    Deadline) override {
    return absl::OkStatus();
  }
  absl::Status Flush(Deadline) override { return absl::OkStatus(); }
  absl::Status Leave(Deadline) override { return absl::OkStatus(); }
  absl::Status DropJob(Deadline) override { return absl::OkStatus(); }
  absl::StatusOr<std::vector<ServerCheckpoint>> Checkpoint(absl::string_view, absl::string_view,
                                                           Deadline) override {
    return std::vector<ServerCheckpoint>();
  }
  absl::Status DropCheckpoint(absl::string_view, absl::string_view, Deadline) override {
    return absl::OkStatus();
  }
  absl::Status Restore(const RestoreSource&, Deadline) override { return absl::OkStatus(); }
  absl::Status VerifyRestore(const RestoreSource&, Deadline) override { return absl::OkStatus(); }
  StalenessSummary staleness() const override { return {}; }
  ClientCounters counters() const override { return {}; }

 private:
  absl::Status Call(absl::Span<const PushSource> sources, absl::string_view position,
                    absl::Span<const PullTarget> targets, absl::string_view kind = "") {
    absl::MutexLock lock(&mutex_);
    if (!failure_.ok()) return failure_;
    std::string text;
    for (const PushSource& source : sources) {
      std::vector<float>& values = variables_[std::string(source.variable)];
      const auto* gradient = reinterpret_cast<const float*>(source.values.data());
      values.resize(source.values.size() / sizeof(float));
      for (size_t i = 0; i < values.size(); ++i) values[i] -= gradient[i];
      absl::StrAppend(&text, text.empty() ? "" : ", ", "push ", source.variable, " ", gradient[0],
                      " @", position);
    }
    for (const PullTarget& target : targets) {
      std::vector<float>& values = variables_[std::string(target.variable)];
      values.resize(target.out.size() / sizeof(float));
      std::memcpy(target.out.data(), values.data(), target.out.size());
      absl::StrAppend(&text, text.empty() ? "" : ", ", "pull ", target.variable);
    }
    calls_.push_back(absl::StrCat(kind, text));
    return absl::OkStatus();
  }

  mutable absl::Mutex mutex_;
  std::map<std::string, std::vector<float>> variables_;
  std::vector<std::string> calls_;
  absl::Status failure_;
  const std::string position_;
};

}  // namespace cairn::test
