// Table "t" of rows that start at zeros and count their pushes, at learning rate 1.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/ps_server/server_fixture.h"

namespace cairn {

// `count` keys that are far apart.
inline std::vector<int64_t> Range(int64_t first, int64_t count) {
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < count; ++i) keys.push_back((first + i) * 1000003);
  return keys;
}

// Adds 1 to each key's row.
inline absl::Status Push(TestClient& client, const std::vector<int64_t>& keys, int64_t dim = 1) {
  return client.PushKeys("t", keys, std::vector<float>(keys.size() * static_cast<size_t>(dim), -1))
      .status();
}

inline std::vector<float> Pull(TestClient& client, const std::vector<int64_t>& keys) {
  const auto values = client.PullKeys("t", keys);
  EXPECT_OK(values);
  return values.ok() ? *values : std::vector<float>();
}

inline wire::ShardInfo Info(TestClient& client) {
  return client.Describe()->variables[0].shards[0];
}

// Every row has its number of pushes. Pulls `batch` keys at once, in the order of the map.
template <typename Map>
void ExpectRows(TestClient& client, const Map& pushes, int64_t dim, size_t batch) {
  std::vector<int64_t> keys;
  for (auto at = pushes.begin(); at != pushes.end();) {
    keys.clear();
    for (; at != pushes.end() && keys.size() < batch; ++at) keys.push_back(at->first);
    const auto values = client.PullKeys("t", keys);
    ASSERT_OK(values);
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto want = static_cast<float>(pushes.at(keys[i]));
      const float* const row = values->data() + i * static_cast<size_t>(dim);
      ASSERT_EQ(std::count(row, row + dim, want), dim) << keys[i] << " is " << row[0];
    }
  }
}

}  // namespace cairn
