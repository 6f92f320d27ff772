// The servers of a cluster file, with those that have come and gone since, for tools.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "thrift/cairn_types.h"

namespace cairn {

// Addresses by index, and who has left. Thread safety: a value.
struct MemberList {
  std::vector<std::string> addresses;
  std::vector<bool> left;  // as long as `addresses`, or shorter: the others have not
  int64_t version = 0;     // of what ps:0 said; 0: the cluster file's

  // As ps:0 says.
  void Take(const wire::Members& members);
  bool HasLeft(size_t index) const { return index < left.size() && left[index]; }
  // Indices of those that have not left, ascending.
  std::vector<int32_t> Live() const;
};

}  // namespace cairn
