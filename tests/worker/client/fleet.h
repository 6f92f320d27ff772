// Fake servers for tests of the client: in process, or behind listeners and proxies.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "ps_server/net/listener.h"
#include "tests/support/addresses.h"
#include "tests/support/fake_service.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tcp_proxy.h"
#include "worker/client/ps_client.h"

namespace cairn::test {

inline Deadline Soon() { return Deadline::In(absl::Seconds(20)); }

class Fleet {
 public:
  Fleet(int32_t count, bool remote) : remote_(remote) {
    for (int32_t s = 0; s < count; ++s) {
      fakes_.push_back(std::make_unique<FakeService>(s, count));
      if (!remote) continue;
      listeners_.push_back(
          Listener::Start(fakes_.back()->engine(), OnOwnAddress<ListenerOptions>()).value());
      proxies_.push_back(std::make_unique<TcpProxy>(listeners_.back()->address()));
    }
  }

  FakeService& fake(int32_t server) { return *fakes_[server]; }
  TcpProxy& proxy(int32_t server) { return *proxies_[server]; }

  // A sequenced worker unless `options` says otherwise.
  static ClientOptions Options(int32_t worker = 0) {
    ClientOptions options;
    options.job = "job";
    options.worker = worker;
    options.task = worker < 0 ? "tool" : absl::StrCat("worker:", worker);
    options.ps_wait = absl::Seconds(10);
    return options;
  }

  absl::StatusOr<std::unique_ptr<PsClient>> TryConnect(ClientOptions options,
                                                       Deadline deadline = Soon()) {
    if (remote_) {
      options.local_transport = LocalTransport::kOff;  // bypasses proxies
      for (const auto& proxy : proxies_) options.servers.push_back(proxy->address());
      return PsClient::Connect(options, deadline);
    }
    std::vector<wire::ParameterServerIf*> services;
    for (const auto& fake : fakes_) services.push_back(fake.get());
    return PsClient::ConnectInProcess(options, services, deadline);
  }
  std::unique_ptr<PsClient> Connect(const ClientOptions& options = Options()) {
    absl::StatusOr<std::unique_ptr<PsClient>> client = TryConnect(options);
    EXPECT_OK(client);
    return *std::move(client);
  }

 private:
  const bool remote_;
  std::vector<std::unique_ptr<FakeService>> fakes_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<std::unique_ptr<TcpProxy>> proxies_;
};

inline VariableSpec Dense(const std::string& name, Shape shape,
                          std::vector<DenseShard> shards = {}) {
  VariableSpec spec;
  spec.name = name;
  spec.shape = std::move(shape);
  spec.shards = std::move(shards);
  return spec;
}

inline VariableSpec Table(const std::string& name, int64_t dim) {
  VariableSpec spec;
  spec.name = name;
  spec.kind = VariableKind::kEmbedding;
  spec.touched_rows = TouchedRows::kPushed;
  spec.shape = {dim};
  return spec;
}

inline PushSource Whole(absl::string_view variable, const std::vector<float>& values) {
  return {.variable = variable, .values = AsBytes(absl::MakeConstSpan(values))};
}
inline PushSource Some(absl::string_view variable, Part part, const std::vector<int64_t>& ids,
                       const std::vector<float>& values) {
  return {.variable = variable,
          .part = part,
          .ids = ids,
          .values = AsBytes(absl::MakeConstSpan(values))};
}
inline PullTarget WholeInto(absl::string_view variable, std::vector<float>* out) {
  return {.variable = variable, .out = AsWritableBytes(absl::MakeSpan(*out))};
}
inline PullTarget SomeInto(absl::string_view variable, Part part, const std::vector<int64_t>& ids,
                           std::vector<float>* out) {
  return {
      .variable = variable, .part = part, .ids = ids, .out = AsWritableBytes(absl::MakeSpan(*out))};
}

// Pulls a whole dense variable.
inline std::vector<float> PullWhole(PsClient& client, absl::string_view variable, size_t count) {
  std::vector<float> out(count, -12345);
  EXPECT_OK(client.Pull({WholeInto(variable, &out)}, Soon()));
  return out;
}

}  // namespace cairn::test
