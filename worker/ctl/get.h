// Shows values of a variable, as `redis-cli GET` shows those of a key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/ctl/answer.h"
#include "worker/ctl/target.h"

namespace cairn {

struct GetOptions {
  TargetOptions target;
  std::string variable;
  std::vector<std::string> keys;         // rows of a dense variable, keys of a table; empty: the
                                         // whole variable
  std::string slot;                      // a slot of the optimizer; empty: the value
  std::string local_transport = "auto";  // to the servers
};

// The limit of numbers in one answer.
inline constexpr int64_t kMostValuesShown = 100000;

// A number is the key itself; any other text ("C3:68fd1e64") is hashed as the data readers hash it.
int64_t KeyFromText(absl::string_view text);

// Reads without a lease, so the job does not change.
absl::StatusOr<Answer> RunGet(const GetOptions& options);

}  // namespace cairn
