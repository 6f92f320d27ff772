// What a server decides about a numbered call (DESIGN §4), apart from carrying it out: tests check
// these very rules in every order of events.
#pragma once

#include <cstdint>

namespace cairn {

// An incarnation of a worker, where `known` is the highest that said hello.
enum class Standing {
  kCurrent,
  kFenced,   // a newer one has taken its place
  kUnknown,  // newer than any known here: the server was restarted, or it said no hello
};
constexpr Standing StandingOf(int64_t incarnation, int64_t known) {
  if (incarnation == known) return Standing::kCurrent;
  return incarnation < known ? Standing::kFenced : Standing::kUnknown;
}

// REBOOTED: what the caller knows of this server is of a boot that is gone. 0: it names none.
constexpr bool ExpectsAnotherBoot(int64_t expected_boot_id, int64_t boot_id) {
  return expected_boot_id != 0 && expected_boot_id != boot_id;
}

// Up to where the caller says that it has nothing for this server. It says so of one boot: another
// one may lack what that one had, so without a boot id it says nothing.
constexpr int64_t ThroughOf(int64_t through, int64_t boot_id) { return boot_id == 0 ? 0 : through; }

// REPLAY: the one before it on this server is not applied here.
constexpr bool ComesTooEarly(int64_t after, int64_t applied) { return after > applied; }

// Every stripe here has its part of it, whatever watermarks there are.
constexpr bool IsApplied(int64_t sequence, int64_t applied) { return sequence <= applied; }

}  // namespace cairn
