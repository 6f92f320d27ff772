// Initial values that depend only on (seed, name, position), so they are the same after a restart
// and for any number of servers or shards.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace cairn {

// `type` and its arguments (defaults in brackets):
//   zeros; ones; constant: value [0]; uniform: minval [-0.05], maxval [0.05];
//   normal: mean [0], stddev [0.05]; glorot_uniform: none, limit sqrt(6 / (fan_in + fan_out)) of
//   the whole shape (for embedding rows of width d: fan_in 1, fan_out d);
//   wave: scale [1], value[i] = scale * cos(0.37 * i), i the flat index in the whole variable,
//   computed in float64 (dense variables only).
struct InitializerConfig {
  std::string type = "zeros";
  absl::btree_map<std::string, double> arguments = {};
  int64_t seed = 0;

  // Omitted defaults compare equal to explicit ones.
  bool operator==(const InitializerConfig& other) const;
};

// `config` with all defaults filled in.
InitializerConfig WithDefaults(const InitializerConfig& config);

// kInvalidArgument: unknown type or argument (the message gives the nearest name), minval > maxval,
// stddev < 0, a value that is not finite, or wave for an embedding (`is_embedding`).
absl::Status ValidateInitializer(const InitializerConfig& config, bool is_embedding);

// "uniform(minval=-0.05, maxval=0.05, seed=1)".
std::string InitializerText(const InitializerConfig& config);

// Elements [first, first + out.size()) of the dense variable `name` of `shape`. `config` is valid.
void InitializeDense(const InitializerConfig& config, absl::string_view name,
                     absl::Span<const int64_t> shape, int64_t first, absl::Span<float> out);

// The row of `key` in an embedding table. `table_hash` is HashBytes(name).
void InitializeRow(const InitializerConfig& config, uint64_t table_hash, int64_t key,
                   absl::Span<float> out);

}  // namespace cairn
