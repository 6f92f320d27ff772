// Ranks of a group as threads, and values that differ by rank.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tensor.h"
#include "tests/support/addresses.h"
#include "worker/collective/control_server.h"
#include "worker/collective/gloo_group.h"

namespace cairn::test {

// Runs body(rank) for every rank concurrently, and returns when all have returned.
inline void OnRanks(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(size));
  for (int r = 0; r < size; ++r) threads.emplace_back(body, r);
  for (std::thread& thread : threads) thread.join();
}

// Limit of a collective that is expected to succeed.
inline Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

// The ports are only names here: the ranks rendezvous at a control server.
inline std::vector<std::string> Addresses(int size) {
  std::vector<std::string> addresses;
  for (int r = 0; r < size; ++r) addresses.push_back(absl::StrCat(OwnHost(), ":", 5000 + r));
  return addresses;
}

// The ranks of a group in one process, each with its own connections.
class Ranks {
 public:
  explicit Ranks(int size) : server_(ControlServer::Start(OwnAddress()).value()), groups_(size) {
    OnRanks(size, [&](int r) {
      GlooOptions options = {.rank = r, .addresses = Addresses(size)};
      options.rendezvous_address = server_->address();
      groups_[static_cast<size_t>(r)] = ConnectGloo(options, Soon()).value();
    });
  }
  CollectiveGroup& operator[](int rank) { return *groups_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(groups_.size()); }
  void Destroy(int rank) { groups_[static_cast<size_t>(rank)].reset(); }

 private:
  std::unique_ptr<ControlServer> server_;
  std::vector<std::unique_ptr<CollectiveGroup>> groups_;
};

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
