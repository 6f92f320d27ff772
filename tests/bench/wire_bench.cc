// Compares the wire with raw TCP of the same message pattern: 4 MiB pushes and pulls, a 64-byte
// round trip, and a 4 MiB push that a real engine applies with SGD. One thread on each side,
// loopback. Rounds of raw TCP and Cairn alternate; each line gives the median of their ratios and
// that of processor time (Cairn's over raw TCP's). The same run checks that the bytes arrived.
// --rounds=N (15), --round_seconds=S (0.2), --row=NAME (all).
//
// TLS is compared with its bound: the time of the same bytes over raw TCP plus one pass through
// AES-128-GCM on each side, in records of 16 KiB as in `openssl speed -evp aes-128-gcm -bytes
// 16384`: t = bytes / tcp_rate + 2 * bytes / gcm_rate. In the rows for one core, both sides run on
// that core, for Cairn and for the bound; in the others the two sides overlap as in real use.
//
// The local transport (thrift/LOCAL.md) is compared with the same calls to the same server over
// TCP: in its rows "raw" is Cairn's own TCP connection.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "ps_server/engine/engine.h"
#include "ps_server/engine/process_setup.h"
#include "ps_server/net/listener.h"
#include "tests/bench/bench.h"
#include "tests/support/addresses.h"
#include "tests/support/fake_engine.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_certificates.h"
#include "thrift/client/wire_client.h"

ABSL_FLAG(int, rounds, 15, "Pairs of rounds, raw and ours");
ABSL_FLAG(double, round_seconds, 0.2, "Length of a round");
ABSL_FLAG(std::string, row, "", "The row to measure alone");

namespace cairn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kFloats = 1 << 20;
constexpr size_t kLargeBytes = kFloats * sizeof(float);
constexpr size_t kSmallFloats = 16;

// The bytes of a push or a pull and its reply on the wire, without the payload.
constexpr size_t kPushOverheadBytes = 180;
constexpr size_t kPushReplyBytes = 90;
constexpr size_t kPullBytes = 120;
constexpr size_t kPullReplyOverheadBytes = 100;

Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

void SendAll(int fd, const Payload& payload) {
  const std::byte* data = payload.data();
  for (size_t left = payload.size(); left > 0;) {
    const ssize_t sent = ::send(fd, data, left, MSG_NOSIGNAL);
    if (sent <= 0) Die("raw send");
    data += sent;
    left -= static_cast<size_t>(sent);
  }
}

bool ReceiveAll(int fd, Payload& payload) {
  std::byte* data = payload.mutable_data();
  for (size_t left = payload.size(); left > 0;) {
    const ssize_t got = ::recv(fd, data, left, 0);
    if (got <= 0) return false;
    data += got;
    left -= static_cast<size_t>(got);
  }
  return true;
}

// Aligned to cache lines: the kernel copies to and from other addresses at half the speed.
Payload Buffer(size_t bytes) {
  Payload buffer = Payload::Uninitialized(bytes);
  std::fill_n(buffer.mutable_data(), bytes, std::byte{1});
  return buffer;
}

// Blocking sockets, one thread on each side: `request` bytes in one direction, `reply` bytes back.
class RawPair {
 public:
  RawPair(size_t request, size_t reply) : out_(Buffer(request)), in_(Buffer(reply)) {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    if (::bind(listener, reinterpret_cast<sockaddr*>(&at), sizeof(at)) != 0 ||
        ::listen(listener, 1) != 0 ||
        ::getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size) != 0) {
      Die("raw listen");
    }
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&at), sizeof(at)) != 0) Die("raw connect");
    const int served = ::accept(listener, nullptr, nullptr);
    ::close(listener);
    for (const int fd : {fd_, served}) {
      const int one = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    }
    server_ = std::thread([served, request, reply] {
      Payload in = Buffer(request);
      const Payload out = Buffer(reply);
      while (ReceiveAll(served, in)) SendAll(served, out);
      ::close(served);
    });
  }
  ~RawPair() {
    ::close(fd_);
    server_.join();
  }
  void Call() {
    SendAll(fd_, out_);
    if (!ReceiveAll(fd_, in_)) Die("raw receive");
  }

 private:
  int fd_ = -1;
  Payload out_;
  Payload in_;
  std::thread server_;
};

// For one call: elapsed time, and processor time of both sides (this process), which other programs
// on the machine do not affect.
struct Cost {
  double seconds = 0;
  double cpu_seconds = 0;
};

double CpuSeconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Cost CostOf(const std::function<void()>& call) {
  const auto length = std::chrono::duration<double>(absl::GetFlag(FLAGS_round_seconds));
  const Clock::time_point start = Clock::now();
  const double cpu_start = CpuSeconds();
  int calls = 0;
  Clock::time_point now = start;
  do {
    call();
    ++calls;
    now = Clock::now();
  } while (now - start < length);
  return {std::chrono::duration<double>(now - start).count() / calls,
          (CpuSeconds() - cpu_start) / calls};
}

// Prints the line of one row. `is_latency`: the ratio is of times (Cairn's over raw TCP's, at most
// `bar`); otherwise of speeds (at least `bar`).
void Measure(const char* name, size_t bytes, double bar, bool is_latency,
             const std::function<void()>& raw, const std::function<void()>& ours,
             const std::function<bool()>& verify) {
  CostOf(raw);
  CostOf(ours);
  std::vector<double> ratios;
  std::vector<double> cpu_ratios;
  std::vector<double> raw_seconds;
  std::vector<double> our_seconds;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    const Cost raw_cost = CostOf(raw);
    const Cost our_cost = CostOf(ours);
    raw_seconds.push_back(raw_cost.seconds);
    our_seconds.push_back(our_cost.seconds);
    const double time_ratio = our_cost.seconds / raw_cost.seconds;
    ratios.push_back(is_latency ? time_ratio : 1 / time_ratio);
    cpu_ratios.push_back(our_cost.cpu_seconds / raw_cost.cpu_seconds);
  }
  const double ratio = Median(ratios);
  std::printf(
      "{\"name\": \"%s\", \"ratio\": %.3f, \"bar\": \"%s %.2f\", \"met\": %s, \"bytes\": %zu, "
      "\"microseconds\": %.1f, \"raw_microseconds\": %.1f, \"gigabytes_per_second\": %.2f, "
      "\"cpu_time_ratio\": %.2f, \"verified\": %s}\n",
      name, ratio, is_latency ? "<=" : ">=", bar,
      (is_latency ? ratio <= bar : ratio >= bar) ? "true" : "false", bytes,
      Median(our_seconds) * 1e6, Median(raw_seconds) * 1e6,
      static_cast<double>(bytes) / Median(our_seconds) / 1e9, Median(cpu_ratios),
      verify() ? "true" : "false");
  std::fflush(stdout);
}

wire::Caller Tool() {
  wire::Caller caller;
  caller.job = "bench";
  return caller;
}

Payload Numbered(size_t count) {
  Payload payload = Buffer(count * sizeof(float));
  const absl::Span<float> values = payload.MutableAs<float>();
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 1021);
  return payload;
}

wire::PushRequest PushOf(absl::Span<const float> values) {
  wire::PushRequest request;
  request.caller = Tool();
  request.items.resize(1);
  request.items[0].variable = "w";
  request.items[0].values = Payload::ViewOf(values);
  return request;
}

wire::VariableSpec Spec() {
  wire::VariableSpec spec;
  spec.__set_name("w");
  spec.__set_shape({1024, kFloats / 1024});
  wire::Optimizer optimizer;
  optimizer.type = "sgd";
  optimizer.learning_rate.type = "constant";
  optimizer.learning_rate.arguments["learning_rate"] = 0.5;
  spec.__set_optimizer(optimizer);
  return spec;
}

// A connection to a server.
struct Connected {
  Connected(const std::string& address, const WireClientOptions& options)
      : client(WireClient::Connect(address, options, Soon()).value()) {
    wire::ServerState state;
    Require(client->Call("create_variables", Soon(),
                         [&](auto& stub) { stub.create_variables(state, Tool(), {Spec()}); }));
  }
  void Push(const wire::PushRequest& request) {
    Require(client->Call("push", Soon(), [&](auto& stub) { stub.push(reply, request); }));
  }
  void Assign(const Payload& values) {
    wire::AssignRequest request;
    request.caller = Tool();
    request.items.resize(1);
    request.items[0].variable = "w";
    request.items[0].values = Payload::View(values.data(), values.size());
    Require(client->Call("assign", Soon(), [&](auto& stub) { stub.assign(reply, request); }));
  }
  void PullInto(absl::Span<float> out) {
    wire::PullRequest request;
    request.caller = Tool();
    request.items.resize(1);
    request.items[0].variable = "w";
    const absl::Span<std::byte> target(reinterpret_cast<std::byte*>(out.data()),
                                       out.size() * sizeof(float));
    client->ReadPayloadsInto({&target, 1});
    wire::PullReply pulled;
    Require(client->Call("pull", Soon(), [&](auto& stub) { stub.pull(pulled, request); }));
    if (pulled.items.size() != 1 || pulled.items[0].values.data() != target.data()) {
      Die("the pulled payload is not in its target");
    }
  }

  std::unique_ptr<WireClient> client;
  wire::PushReply reply;
};

struct Server {
  Server(Engine& engine, const SecurityOptions& security)
      : listener(Listener::Start(engine, OnOwnAddress<ListenerOptions>({.security = security}))
                     .value()) {}
  std::unique_ptr<Listener> listener;
};

// A server and a connection to it.
struct Served : Server, Connected {
  explicit Served(Engine& engine, const SecurityOptions& server = {},
                  const SecurityOptions& caller = {})
      : Server(engine, server),
        Connected(listener->address(), {.security = ClientSecurity::Load(caller).value()}) {}
};

// The same with another connection to the server, over shared memory.
struct LocallyServed : Served {
  explicit LocallyServed(Engine& engine)
      : Served(engine), local(listener->address(), {.local = LocalTransport::kSameUser}) {
    if (!local.client->is_local()) Die("no local transport here");
  }
  Connected local;
};

// Pushes that carry their number at both ends, and the server's check of their order.
class NumberedPushes {
 public:
  explicit NumberedPushes(size_t floats)
      : payload_(Numbered(floats)),
        values_(payload_.MutableAs<float>()),
        request_(PushOf(values_)) {}

  FakeEngineOptions options() {
    return {.only_wire = true, .on_push = [this](const wire::PushItem& item) {
              const auto pushed = item.values.As<float>();
              const bool right = pushed.size() == values_.size() && pushed.front() == expected_ &&
                                 pushed.back() == expected_;
              wrong_ += right ? 0 : 1;
              expected_ = After(expected_);
            }};
  }
  void Push(Connected& by) {
    values_.front() = values_.back() = number_;
    number_ = After(number_);
    by.Push(request_);
  }
  bool verified() const { return wrong_ == 0 && expected_ == number_; }

 private:
  static float After(float number) { return number + 1 < 1e6F ? number + 1 : 0; }

  Payload payload_;
  const absl::Span<float> values_;
  const wire::PushRequest request_;
  float number_ = 0;  // of the next push
  float expected_ = 0;
  std::atomic<int64_t> wrong_ = 0;
};

void MeasurePush(const char* name, size_t floats, double bar, bool is_latency) {
  NumberedPushes pushes(floats);
  FakeEngine engine(pushes.options());
  Served served(engine);
  RawPair raw(floats * sizeof(float) + kPushOverheadBytes, kPushReplyBytes);
  Measure(
      name, floats * sizeof(float), bar, is_latency, [&] { raw.Call(); },
      [&] { pushes.Push(served); }, [&] { return pushes.verified(); });
}

void MeasurePull(const char* name) {
  FakeEngine engine(FakeEngineOptions{.only_wire = true});
  Served served(engine);
  const Payload values = Numbered(kFloats);
  served.Assign(values);
  Payload out = Buffer(kLargeBytes);
  RawPair raw(kPullBytes, kLargeBytes + kPullReplyOverheadBytes);
  Measure(
      name, kLargeBytes, 0.80, false, [&] { raw.Call(); },
      [&] { served.PullInto(out.MutableAs<float>()); },
      [&] {
        std::fill_n(out.mutable_data(), kLargeBytes, std::byte{1});
        served.PullInto(out.MutableAs<float>());
        return out == values;
      });
}

// The same pushes, alternately over TCP and over the local transport.
void MeasureLocalPush(const char* name, size_t floats, double bar, bool is_latency) {
  NumberedPushes pushes(floats);
  FakeEngine engine(pushes.options());
  LocallyServed served(engine);
  Measure(
      name, floats * sizeof(float), bar, is_latency, [&] { pushes.Push(served); },
      [&] { pushes.Push(served.local); }, [&] { return pushes.verified(); });
}

void MeasureLocalPull(const char* name) {
  FakeEngine engine(FakeEngineOptions{.only_wire = true});
  LocallyServed served(engine);
  const Payload values = Numbered(kFloats);
  served.Assign(values);
  Payload out = Buffer(kLargeBytes);
  Measure(
      name, kLargeBytes, 1.5, false, [&] { served.PullInto(out.MutableAs<float>()); },
      [&] { served.local.PullInto(out.MutableAs<float>()); },
      [&] {
        std::fill_n(out.mutable_data(), kLargeBytes, std::byte{1});
        served.local.PullInto(out.MutableAs<float>());
        return out == values;
      });
}

// AES-128-GCM over a payload, one TLS record at a time.
class Cipher {
 public:
  explicit Cipher(bool seals) : seals_(seals), context_(EVP_CIPHER_CTX_new()) {
    if (EVP_CipherInit_ex(context_, EVP_aes_128_gcm(), nullptr, key_, nonce_, seals_ ? 1 : 0) !=
        1) {
      Die("aes-128-gcm");
    }
  }
  ~Cipher() { EVP_CIPHER_CTX_free(context_); }
  void Run(const Payload& payload) {
    constexpr size_t kRecordBytes = 16 << 10;
    const auto* const from = reinterpret_cast<const unsigned char*>(payload.data());
    for (size_t at = 0; at < payload.size(); at += kRecordBytes) {
      const auto bytes = static_cast<int>(std::min(kRecordBytes, payload.size() - at));
      int written = 0;
      if (EVP_CipherInit_ex(context_, nullptr, nullptr, nullptr, nonce_, seals_ ? 1 : 0) != 1 ||
          EVP_CipherUpdate(context_, out_, &written, from + at, bytes) != 1 || written != bytes) {
        Die("aes-128-gcm");
      }
      if (seals_ && EVP_CipherFinal_ex(context_, out_, &written) != 1) Die("aes-128-gcm");
    }
  }

 private:
  const bool seals_;
  const unsigned char key_[16] = {1};
  const unsigned char nonce_[12] = {2};
  EVP_CIPHER_CTX* const context_;
  unsigned char out_[(16 << 10) + 64];
};

// Threads started while it exists run on one core.
class OnOneCore {
 public:
  explicit OnOneCore(bool wanted) {
    ::sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    if (wanted) ::sched_setaffinity(0, sizeof(one), &one);
  }
  ~OnOneCore() { ::sched_setaffinity(0, sizeof(before_), &before_); }
  OnOneCore(const OnOneCore&) = delete;
  OnOneCore& operator=(const OnOneCore&) = delete;

 private:
  cpu_set_t before_;
};

// A server and a client that trust each other.
struct TlsServed {
  TestCertificates certificates;
  FakeEngine engine{FakeEngineOptions{.only_wire = true}};
  Served served{engine, certificates.Issue(TestCertificates::ServerRequest()),
                certificates.Issue(TestCertificates::ClientRequest("bench", kWorker))};
};

// Raw TCP, and one pass of the payload through the cipher on each side.
class TlsBound {
 public:
  TlsBound(size_t request, size_t reply) : raw_(request, reply) {}
  void Call(const Payload& payload) {
    raw_.Call();
    seal_.Run(payload);
    open_.Run(payload);
  }

 private:
  RawPair raw_;
  Cipher seal_{/*seals=*/true};
  Cipher open_{/*seals=*/false};
};

void MeasureTlsPush(const char* name, bool on_one_core) {
  const OnOneCore core(on_one_core);
  TlsServed tls;
  const Payload values = Numbered(kFloats);
  const wire::PushRequest request = PushOf(values.As<float>());
  TlsBound bound(kLargeBytes + kPushOverheadBytes, kPushReplyBytes);
  int64_t pushes = 0;
  Measure(
      name, kLargeBytes, 0.60, false, [&] { bound.Call(values); },
      [&] {
        tls.served.Push(request);
        ++pushes;
      },
      [&] { return tls.engine.pushed_bytes() == pushes * static_cast<int64_t>(kLargeBytes); });
}

void MeasureTlsPull(const char* name, bool on_one_core) {
  const OnOneCore core(on_one_core);
  TlsServed tls;
  const Payload values = Numbered(kFloats);
  tls.served.Assign(values);
  TlsBound bound(kPullBytes, kLargeBytes + kPullReplyOverheadBytes);
  Payload out = Buffer(kLargeBytes);
  Measure(
      name, kLargeBytes, 0.60, false, [&] { bound.Call(values); },
      [&] { tls.served.PullInto(out.MutableAs<float>()); },
      [&] {
        std::fill_n(out.mutable_data(), kLargeBytes, std::byte{1});
        tls.served.PullInto(out.MutableAs<float>());
        return out == values;
      });
}

// The rate that `openssl speed -evp aes-128-gcm -bytes 16384` reports, also with -decrypt: the
// limit for TLS if each side has a core, and twice the limit if both share one.
void MeasureCipher(const char* name) {
  const Payload values = Numbered(kFloats);
  const auto rate = [&](bool seals) {
    Cipher cipher(seals);
    const Cost cost = CostOf([&] { cipher.Run(values); });
    return static_cast<double>(kLargeBytes) / cost.seconds / 1e9;
  };
  std::printf(
      "{\"name\": \"%s\", \"seal_gigabytes_per_second\": %.2f, "
      "\"open_gigabytes_per_second\": %.2f}\n",
      name, rate(true), rate(false));
}

void MeasureSgd(const char* name) {
  TempDir folder;
  EngineOptions options;
  options.directory = folder.Join("ps");
  options.durability = Durability::kOff;
  const std::unique_ptr<Engine> engine = Engine::Open(options).value();
  {
    Served served(*engine);
    Payload gradient = Buffer(kLargeBytes);
    std::fill_n(gradient.MutableAs<float>().begin(), kFloats, 1.0F);
    const wire::PushRequest request = PushOf(gradient.As<float>());
    RawPair raw(kLargeBytes + kPushOverheadBytes, kPushReplyBytes);
    int64_t pushes = 0;
    Measure(
        name, kLargeBytes, 0.60, false, [&] { raw.Call(); },
        [&] {
          ++pushes;
          served.Push(request);
        },
        [&] {
          std::vector<float> out(kFloats);
          served.PullInto(absl::MakeSpan(out));
          const float expected = -0.5F * static_cast<float>(pushes);  // exact in float32
          return served.reply.items.size() == 1 && served.reply.items[0].version == pushes &&
                 std::all_of(out.begin(), out.end(), [&](float v) { return v == expected; });
        });
  }
  Require(engine->Close());
}

int Main() {
  const std::string wanted = absl::GetFlag(FLAGS_row);
  const auto row = [&](const char* name, const std::function<void(const char*)>& measure) {
    if (wanted.empty() || wanted == name) measure(name);
  };
  row("push_4MiB", [](const char* name) { MeasurePush(name, kFloats, 0.80, false); });
  row("pull_4MiB", MeasurePull);
  row("round_trip_64B", [](const char* name) { MeasurePush(name, kSmallFloats, 1.5, true); });
  row("push_4MiB_sgd", MeasureSgd);
  row("push_4MiB_local", [](const char* name) { MeasureLocalPush(name, kFloats, 1.5, false); });
  row("pull_4MiB_local", MeasureLocalPull);
  row("round_trip_64B_local",
      [](const char* name) { MeasureLocalPush(name, kSmallFloats, 0.7, true); });
  row("aes_128_gcm", MeasureCipher);
  for (const bool on_one_core : {false, true}) {
    row(on_one_core ? "push_4MiB_tls_one_core" : "push_4MiB_tls",
        [&](const char* name) { MeasureTlsPush(name, on_one_core); });
    row(on_one_core ? "pull_4MiB_tls_one_core" : "pull_4MiB_tls",
        [&](const char* name) { MeasureTlsPull(name, on_one_core); });
  }
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  cairn::SetUpServerProcess();
  absl::ParseCommandLine(argc, argv);
  return cairn::Main();
}
