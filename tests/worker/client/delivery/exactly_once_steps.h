// The events of the model of exactly_once_model.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "tests/worker/client/delivery/exactly_once_model.h"
#include "tests/worker/client/delivery/exactly_once_state.h"
#include "worker/client/delivery/position.h"

namespace cairn::test {

// Properties that follow from which pushes touch which stripes.
class Workload {
 public:
  explicit Workload(const std::vector<unsigned>& parts) : parts_(parts) {
    for (int64_t q = 0; q <= count(); ++q) {
      const std::vector<int64_t> last = {LastPart(0, q), LastPart(1, q)};
      EncodePosition(q, last, absl::StrCat("after ", q), &positions_.emplace_back());
    }
    positions_[0].clear();
  }
  int count() const { return static_cast<int>(parts_.size()); }
  // Stripes of `server` that push `sequence` touches.
  unsigned Stripes(int server, int64_t sequence) const {
    return parts_[sequence - 1] >> (kModelStripes * server) & ((1u << kModelStripes) - 1);
  }
  bool HasPart(int server, int64_t sequence) const { return Stripes(server, sequence) != 0; }
  // The last push up to `sequence` with a part on `server`.
  int64_t LastPart(int server, int64_t sequence) const {
    while (sequence > 0 && !HasPart(server, sequence)) --sequence;
    return sequence;
  }
  const std::string& position(int64_t sequence) const { return positions_[sequence]; }
  int64_t SequenceOf(const std::string& position) const {
    return std::find(positions_.begin(), positions_.end(), position) - positions_.begin();
  }

 private:
  const std::vector<unsigned> parts_;
  std::vector<std::string> positions_;
};

// Thread safety: none.
class Model {
 public:
  explicit Model(const ModelOptions& options) : options_(options), work_(options.parts) {}

  ModelState Start() const;
  // Calls `next` with every state that one event leads to, and with the event.
  using Event = absl::FunctionRef<std::string()>;
  using Next = absl::FunctionRef<void(const ModelState&, Event event)>;
  void Step(const ModelState& state, Next next) const;
  // Returns the invariant that a state violates; empty: none.
  std::string Wrong(const ModelState& state) const;
  bool Complete(const ModelState& state) const;

 private:
  void StepServer(const ModelState& state, int s, Next next) const;
  void StepEpoch(const ModelState& state, int s, Next next) const;
  void StepLink(const ModelState& state, int s, Next next) const;
  void StepRenewal(const ModelState& state, int s, Next next) const;

  void Deliver(ModelServer* server, const ModelMessage& message) const;
  void ApplyOne(ModelServer* server, int s) const;
  bool Take(const ModelState& state, ModelServer* server, const ModelMessage& message) const;
  void WholeEpoch(ModelServer* server) const;
  void Greet(ModelState* state, int s) const;
  void Resume(ModelState* state) const;
  void Crash(ModelServer* server, int kept_writes) const;
  bool Send(ModelState* state, int s, int64_t sequence, bool replay) const;
  void Hear(ModelState* state, int s) const;
  void HearReplay(ModelState* state, int s, const ModelReply& reply) const;
  void Learn(ModelLink* link, uint8_t boot, uint8_t durable) const;
  void RenewHello(ModelState* state, int s) const;
  void EndRenewalIfDone(ModelLink* link) const;
  void Settle(ModelState* state) const;

  const ModelOptions& options_;
  const Workload work_;
  // Set by a step whose fault the resulting state does not show.
  mutable std::string fault_;
};

}  // namespace cairn::test
