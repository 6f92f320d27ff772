// What a server decides about a numbered call (worker/client/EXACTLY_ONCE.md). The callers act on
// the decisions, so that tests can check these rules in every order of events.
#pragma once

#include <cstdint>

namespace cairn {

// State of a worker's incarnation; `known` is the highest incarnation that has said hello.
enum class IncarnationState {
  kCurrent,
  kFenced,   // a newer incarnation has taken its place
  kUnknown,  // newer than any known here: the server restarted, or no hello was received
};
constexpr IncarnationState IncarnationStateOf(int64_t incarnation, int64_t known) {
  if (incarnation == known) return IncarnationState::kCurrent;
  return incarnation < known ? IncarnationState::kFenced : IncarnationState::kUnknown;
}

// REBOOTED: what the caller knows of this server comes from an earlier boot. 0: the call names no
// boot.
constexpr bool ExpectsAnotherBoot(int64_t expected_boot_id, int64_t boot_id) {
  return expected_boot_id != 0 && expected_boot_id != boot_id;
}

// Up to which sequence the caller has nothing for this server. The claim is about one boot: another
// boot may lack what that boot had, so without a boot id it says nothing.
constexpr int64_t ThroughOf(int64_t through, int64_t boot_id) { return boot_id == 0 ? 0 : through; }

// REPLAY: the caller's previous sequence on this server is not applied here.
constexpr bool ComesTooEarly(int64_t after, int64_t applied) { return after > applied; }

// True: every stripe here has its part of the sequence, whatever the watermarks say.
constexpr bool IsApplied(int64_t sequence, int64_t applied) { return sequence <= applied; }

}  // namespace cairn
