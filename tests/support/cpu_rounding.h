// Whether the CPU's loops round as the bodies of the kernels for GPUs do.
#pragma once

namespace cairn::test {

// With a sanitizer the CPU's loops are compiled for the oldest processors, and round otherwise.
#if defined(HWY_COMPILE_ONLY_STATIC)
inline constexpr bool kCpuRoundsOtherwise = true;
#else
inline constexpr bool kCpuRoundsOtherwise = false;
#endif

}  // namespace cairn::test
