// Tells failing allocations where Cairn's own code ends.
#pragma once

namespace cairn::fuzz {

// While one of a thread lives, no allocation of that thread is made to fail.
class OutsideCairn {
 public:
  OutsideCairn();
  ~OutsideCairn();
  OutsideCairn(const OutsideCairn&) = delete;
  OutsideCairn& operator=(const OutsideCairn&) = delete;
};

// Whether this allocation of the calling thread is the one that is to fail; counts it.
bool MemoryFails();

}  // namespace cairn::fuzz
