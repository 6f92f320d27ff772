// Named places at which tests kill a process (SIGKILL) to examine the surviving state. Only test
// programs (tests/faults/meson.build) have crash points: they compile these sources again with
// CAIRN_CRASH_POINTS. Everywhere else a crash point compiles to nothing, so it may be in a hot
// loop. It must not be in a header, because both kinds of program would share the header's code.
#pragma once

#ifdef CAIRN_CRASH_POINTS

namespace cairn {

// Ends the process if the environment variable CAIRN_CRASH_AT is "NAME:N" and this is the N-th time
// (1, 2, …) that any thread reaches the point NAME. Defined in tests/faults/crash_point.cc.
void AtCrashPoint(const char* name);

}  // namespace cairn

#define CAIRN_CRASH_POINT(name) ::cairn::AtCrashPoint(name)
#else
#define CAIRN_CRASH_POINT(name) static_cast<void>(0)
#endif
