// The memory of the fake devices.
#pragma once

#include <cstddef>

namespace cairn::test::fake {

// Memory that only DeviceAccess can use, if the processor has protection keys: other threads that
// touch it die of SIGSEGV. 256-byte aligned, filled with NaN. Null: the device's memory is used up.
// Thread safety: every function may be called from any thread.
void* AllocateOn(int device, size_t bytes);
// False: `memory` is none that AllocateOn returned.
bool FreeOnDevice(void* memory);
// The device whose memory contains `memory`; -1: none.
int DeviceOfMemory(const void* memory);
size_t AllocatedBytes();
// Whether other threads are kept out.
bool IsProtected();

}  // namespace cairn::test::fake
