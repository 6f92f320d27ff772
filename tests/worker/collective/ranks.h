// Ranks of a group as threads, and values that differ by rank.
#pragma once

#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tensor.h"
#include "worker/collective/in_process_group.h"

namespace cairn::test {

// Runs body(rank) for every rank concurrently, and returns when all have returned.
inline void OnRanks(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) threads.emplace_back(body, r);
  for (std::thread& thread : threads) thread.join();
}

inline std::vector<std::string> CpuDevices(int size) {
  std::vector<std::string> devices;
  devices.reserve(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) devices.push_back(absl::StrCat("cpu:", r));
  return devices;
}

// Limit of a collective that is expected to succeed.
inline Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

template <typename T>
ConstBuffer Of(const std::vector<T>& values) {
  return {DTypeOf<T>(), values.data(), static_cast<int64_t>(values.size())};
}
template <typename T>
MutableBuffer Into(std::vector<T>& values) {
  return {DTypeOf<T>(), values.data(), static_cast<int64_t>(values.size())};
}

// Distinct and inexact values: another order of additions gives other bits.
inline std::vector<float> Values(int rank, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = 0.1F * static_cast<float>(rank + 1) + 1.0F / static_cast<float>(i % 1013 + 3);
  }
  return values;
}

}  // namespace cairn::test
