// The partitioners of sharding.json by their short names.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "absl/status/statusor.h"
#include "common/config/partitioner.h"
#include "tests/support/golden.h"

namespace cairn::test {

// "fixed(2)", "min(4,max=2)", "min(4,bytes=0)", "max(16)", "min(default)", "whole" (one shard).
// Throws on another name.
inline absl::StatusOr<std::unique_ptr<Partitioner>> GoldenPartitioner(const std::string& name) {
  if (name == "whole") return FixedShardsPartitioner(1);
  if (name == "min(default)") return MinSizePartitioner();
  const size_t open = name.find('(');
  if (open == std::string::npos) throw UnknownRecord("no partitioner '" + name + "'");
  const int64_t size = std::stoll(name.substr(open + 1));
  const auto named = [&name](const char* argument, int64_t otherwise) {
    const size_t at = name.find(argument);
    if (at == std::string::npos) return otherwise;
    return int64_t{std::stoll(name.substr(at + std::string(argument).size()))};
  };
  const std::string kind = name.substr(0, open);
  if (kind == "fixed") return FixedShardsPartitioner(size);
  if (kind == "min") return MinSizePartitioner(size, named("max=", 1), named("bytes=", 16));
  if (kind == "max") return MaxSizePartitioner(size, named("max=", 0), named("bytes=", 16));
  throw UnknownRecord("no partitioner '" + name + "'");
}

}  // namespace cairn::test
