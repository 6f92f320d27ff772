// Named places at which tests kill a process (SIGKILL) to see what is left. Only the programs that
// tests build of their own (tests/faults/meson.build) have them: there these sources are compiled
// again with CAIRN_CRASH_POINTS, and in everything else a point is nothing at all. So a point may
// stand in the middle of a hot loop, but in no header, whose code programs of both kinds would
// share.
#pragma once

#ifdef CAIRN_CRASH_POINTS

namespace cairn {

// Ends the process where the environment's CAIRN_CRASH_AT is "NAME:N" and this is the N-th passage
// of the point NAME (1, 2, …), counted over all threads. In tests/faults/crash_point.cc.
void AtCrashPoint(const char* name);

}  // namespace cairn

#define CAIRN_CRASH_POINT(name) ::cairn::AtCrashPoint(name)
#else
#define CAIRN_CRASH_POINT(name) static_cast<void>(0)
#endif
