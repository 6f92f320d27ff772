// The servers of a cluster file, updated with the servers that have joined and left since. For
// tools and status pages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "thrift/cairn_types.h"

namespace cairn {

// Addresses of servers by index, and which servers have left. Thread safety: a value.
struct MemberList {
  std::vector<std::string> addresses;
  std::vector<bool> left;  // by index; servers beyond its end have not left
  int64_t version = 0;     // of the member list of ps:0; 0: the cluster file's

  // Applies the member list of ps:0.
  void Take(const wire::Members& members);
  bool HasLeft(size_t index) const { return index < left.size() && left[index]; }
  // Indices of the servers that have not left, ascending.
  std::vector<int32_t> Live() const;
};

}  // namespace cairn
