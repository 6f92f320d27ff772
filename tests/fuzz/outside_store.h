// Marks code outside Cairn for the failing allocations.
#pragma once

namespace cairn::fuzz {

// While a thread has such an object, none of its allocations is made to fail.
class OutsideCairn {
 public:
  OutsideCairn();
  ~OutsideCairn();
  OutsideCairn(const OutsideCairn&) = delete;
  OutsideCairn& operator=(const OutsideCairn&) = delete;
};

// Counts this allocation of the calling thread. Returns whether it must fail.
bool MemoryFails();

}  // namespace cairn::fuzz
