// The cost of connections for a server: the memory of idle connections and their effect on the
// others' p99; the throughput of many busy connections compared with a few; and the latency of
// accepted calls during a flood of pulls that exceeds the server's capacity. JSON lines; every
// reply is compared with the first, byte for byte. The callers are one thread with a socket for
// each caller, so that their own cost does not grow with their number. Loopback only.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/transport/TBufferTransports.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "common/deadline.h"
#include "common/status.h"
#include "tests/bench/bench.h"
#include "tests/bench/raw_server.h"
#include "tests/support/addresses.h"
#include "tests/support/ps_process.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_certificates.h"
#include "thrift/client/wire_client.h"

ABSL_FLAG(std::string, server, CAIRN_PS, "Path of cairn-ps");
ABSL_FLAG(bool, admits, true, "Whether that server knows --serving_threads and --max_queued_calls");
ABSL_FLAG(int, idle, 4000, "Connections that rest");
ABSL_FLAG(int, tls_idle, 500, "Connections under TLS that rest");
ABSL_FLAG(int, busy, 400, "Connections that call back to back");
ABSL_FLAG(int, flood, 64, "Callers of the flood");
ABSL_FLAG(int, rounds, 9, "Of each measurement");
ABSL_FLAG(double, round_seconds, 0.5, "Length of a round");
ABSL_FLAG(std::string, row, "", "One row alone");

namespace cairn {
namespace {

using apache::thrift::protocol::TBinaryProtocol;
using apache::thrift::transport::TMemoryBuffer;
using apache::thrift::transport::TTransportException;
using Clock = std::chrono::steady_clock;

constexpr int kFew = 8;  // number of callers that many callers are compared with
// Rows of the table, and rows of one call in the flood, which takes the server some hundred
// microseconds.
constexpr int64_t kKeys = 64 << 10;
constexpr int64_t kFloodKeys = 4 << 10;

Deadline Soon() { return Deadline::In(absl::Seconds(60)); }

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const auto at = static_cast<int64_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

// Allows `wanted` connections on each side, or as many as the system permits; returns the number.
int AllowConnections(int wanted) {
  constexpr int kOthers = 200;
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);  // the server inherits the limit
  const auto most = static_cast<int>(std::min<rlim_t>(limit.rlim_max, 1 << 20)) - kOthers;
  if (most >= wanted) return wanted;
  std::fprintf(stderr, "the hard limit of open files (ulimit -Hn) is %d: %d connections, not %d\n",
               most + kOthers, most, wanted);
  return most;
}

wire::Caller Tool() {
  wire::Caller caller;
  caller.job = "bench";
  return caller;
}

// The bytes of one call.
std::string FrameOf(const wire::PullRequest& request) {
  const auto buffer = std::make_shared<TMemoryBuffer>();
  wire::ParameterServerClient stub(std::make_shared<TBinaryProtocol>(buffer));
  stub.send_pull(request);
  return buffer->getBufferAsString();
}

struct Answer {
  bool whole = false;
  int32_t retry_after_ms = 0;  // positive: the call was refused
};

Answer Parse(const std::string& bytes) {
  const auto buffer =
      std::make_shared<TMemoryBuffer>(reinterpret_cast<uint8_t*>(const_cast<char*>(bytes.data())),
                                      static_cast<uint32_t>(bytes.size()));
  wire::ParameterServerClient stub(std::make_shared<TBinaryProtocol>(buffer));
  try {
    wire::PullReply reply;
    stub.recv_pull(reply);
    return {.whole = true};
  } catch (const TTransportException&) {
    return {};
  } catch (const wire::ServerError& error) {
    const bool is_busy = error.reason == wire::ErrorReason::BUSY && error.retry_after_ms > 0;
    if (!is_busy) Die("a pull failed: " + error.message);
    return {.whole = true, .retry_after_ms = error.retry_after_ms};
  }
}

// The results of a round.
struct Round {
  std::vector<double> seconds;  // of accepted calls
  int64_t refused = 0;
  double length = 0;
  double rate() const { return static_cast<double>(seconds.size()) / length; }
};

// Connections that repeat one call.
class Crowd {
 public:
  Crowd(int port, const wire::PullRequest& call, int count)
      : frame_(FrameOf(call)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
    for (int i = 0; i < count; ++i) Connect(port);
    if (count > 0) Learn();
  }
  ~Crowd() {
    for (const Caller& caller : callers_) ::close(caller.fd);
    ::close(epoll_);
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // Each connection calls once.
  void CallOnce() {
    for (size_t i = 0; i < callers_.size(); ++i) Send(i);
    Round round;
    while (waiting_ > 0) Turn(round, /*again=*/false, 0);
  }
  // Runs all connections, with `pause` seconds between an answer and the next call.
  Round Run(double seconds, double pause = 0) {
    Round round;
    const Clock::time_point start = Clock::now();
    const auto end =
        start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    for (size_t i = 0; i < callers_.size(); ++i) {
      Later(i, pause * static_cast<double>(i) / static_cast<double>(callers_.size()));
    }
    while (Clock::now() < end) Turn(round, /*again=*/true, pause);
    round.length = Seconds(Clock::now() - start);
    later_.clear();
    while (waiting_ > 0) Turn(round, /*again=*/false, 0);
    return round;
  }
  size_t call_bytes() const { return frame_.size(); }
  const std::string& reply() const { return reference_; }
  int64_t wrong() const { return wrong_; }

 private:
  struct Caller {
    int fd = -1;
    std::string got;
    Clock::time_point sent;
  };

  void Connect(int port) {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<uint16_t>(port));
    at.sin_addr.s_addr = inet_addr(OwnHost().c_str());
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)) != 0) {
      Die(absl::StrCat("connection ", callers_.size(), ": ", std::strerror(errno)));
    }
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = callers_.size();
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    callers_.push_back({.fd = fd});
  }

  // Stores the first answer for comparison.
  void Learn() {
    Send(0);
    Caller& first = callers_[0];
    while (!Parse(first.got).whole) {
      if (!Receive(first)) {
        pollfd waiting = {first.fd, POLLIN, 0};
        ::poll(&waiting, 1, 1000);
      }
    }
    reference_ = std::exchange(first.got, {});
    --waiting_;
  }

  void Send(size_t index) {
    Caller& caller = callers_[index];
    caller.sent = Clock::now();
    for (size_t sent = 0; sent < frame_.size();) {
      const ssize_t part =
          ::send(caller.fd, frame_.data() + sent, frame_.size() - sent, MSG_NOSIGNAL);
      if (part < 0) Die(absl::StrCat("send: ", std::strerror(errno)));
      sent += static_cast<size_t>(part);
    }
    ++waiting_;
  }
  void Later(size_t index, double seconds) {
    later_.emplace(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(seconds)),
                   index);
  }
  // False: no more bytes are available.
  bool Receive(Caller& caller) {
    char buffer[64 << 10];
    const ssize_t got = ::recv(caller.fd, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (got <= 0) Die("the server closed a connection");
    caller.got.append(buffer, static_cast<size_t>(got));
    return static_cast<size_t>(got) == sizeof(buffer);
  }

  void Turn(Round& round, bool again, double pause) {
    while (!later_.empty() && later_.begin()->first <= Clock::now()) {
      Send(later_.begin()->second);
      later_.erase(later_.begin());
    }
    int ms = 100;
    if (!later_.empty()) {
      ms = static_cast<int>(Seconds(later_.begin()->first - Clock::now()) * 1000);
    }
    epoll_event events[256];
    const int count = ::epoll_wait(epoll_, events, 256, std::clamp(ms, 0, 100));
    for (int i = 0; i < count; ++i) Hear(round, events[i].data.u64, again, pause);
  }

  void Hear(Round& round, size_t index, bool again, double pause) {
    Caller& caller = callers_[index];
    while (Receive(caller)) {
    }
    Answer answer;
    if (caller.got.size() >= reference_.size()) {
      wrong_ += caller.got == reference_ ? 0 : 1;
      answer.whole = true;
    } else if (caller.got.size() >= kHeadBytes && caller.got[kFieldAt] == 1) {
      answer = Parse(caller.got);  // field 1 of a result is its error
    }
    if (!answer.whole) return;
    --waiting_;
    caller.got.clear();
    double next = pause;
    if (answer.retry_after_ms > 0) {
      ++round.refused;
      next = answer.retry_after_ms * (1 + jitter_(random_)) / 1000;
    } else {
      round.seconds.push_back(Seconds(Clock::now() - caller.sent));
    }
    if (again && next <= 0) {
      Send(index);
    } else if (again) {
      Later(index, next);
    }
  }

  // Offset in a reply to "pull", after version, name and sequence: a field's type and the low byte
  // of its id.
  static constexpr size_t kFieldAt = 4 + 4 + 4 + 4 + 2;
  static constexpr size_t kHeadBytes = kFieldAt + 1;

  const std::string frame_;
  const int epoll_;
  std::vector<Caller> callers_;
  std::multimap<Clock::time_point, size_t> later_;
  std::string reference_;
  int64_t waiting_ = 0;
  int64_t wrong_ = 0;
  std::mt19937 random_{7};
  std::uniform_real_distribution<double> jitter_{0, 0.25};
};

// A server with a dense variable and a table.
struct Server {
  explicit Server(std::vector<std::string> flags, const WireClientOptions& client = {}) {
    PsOptions options;
    options.program = absl::GetFlag(FLAGS_server);
    options.data_dir = folder.Join("ps");
    options.durability = "off";
    options.flags = std::move(flags);
    options.flags.push_back("--max_connections=6000");
    options.flags.push_back("--max_connections_per_peer=6000");
    absl::StatusOr<std::unique_ptr<PsProcess>> started = PsProcess::Start(options);
    Require(started.status());
    process = *std::move(started);
    Fill(client);
  }

  void Fill(const WireClientOptions& options) {
    const auto client = WireClient::Connect(process->address(), options, Soon());
    Require(client.status());
    wire::VariableSpec dense;
    dense.__set_name("w");
    dense.__set_shape({1024, 64});
    dense.optimizer.type = "sgd";
    dense.optimizer.learning_rate.arguments["learning_rate"] = 0.5;
    dense.initializer.type = "uniform";
    wire::VariableSpec table = dense;
    table.__set_name("t");
    table.kind = wire::VariableKind::EMBEDDING;
    table.__set_touched_rows(wire::TouchedRows::PUSHED);
    table.__set_shape({1});
    wire::ServerState state;
    Require((*client)->Call("create_variables", Soon(), [&](auto& stub) {
      stub.create_variables(state, Tool(), {dense, table});
    }));
    std::vector<int64_t> keys(kKeys);
    std::iota(keys.begin(), keys.end(), 0);
    const std::vector<float> ones(kKeys, 1);
    wire::PushRequest push;
    push.caller = Tool();
    push.items.resize(1);
    push.items[0].variable = "t";
    push.items[0].selection = wire::Selection::KEYS;
    push.items[0].ids = Payload::ViewOf<int64_t>(keys);
    push.items[0].values = Payload::ViewOf<float>(ones);
    wire::PushReply reply;
    Require((*client)->Call("push", Soon(), [&](auto& stub) { stub.push(reply, push); }));
  }

  int port() const { return process->port(); }

  int64_t ResidentBytes() const {
    std::ifstream file(absl::StrCat("/proc/", process->pid(), "/statm"));
    int64_t total = 0;
    int64_t resident = 0;
    file >> total >> resident;
    return resident * ::sysconf(_SC_PAGESIZE);
  }

  // The server's processor time so far.
  double CpuSeconds() const {
    clockid_t clock = 0;
    timespec now = {};
    if (::clock_getcpuclockid(process->pid(), &clock) != 0) Die("no clock of the server");
    ::clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  const TempDir folder;
  std::unique_ptr<PsProcess> process;
};

wire::PullRequest SmallPull() {
  static const std::vector<int64_t> rows = {1, 5, 9, 700};
  wire::PullRequest request;
  request.caller = Tool();
  request.items.resize(1);
  request.items[0].variable = "w";
  request.items[0].selection = wire::Selection::ROWS;
  request.items[0].ids = Payload::ViewOf<int64_t>(rows);
  return request;
}

wire::PullRequest LargePull() {
  wire::PullRequest request = SmallPull();
  request.items[0].selection = wire::Selection::WHOLE;
  request.items[0].ids = Payload();
  return request;
}

wire::PullRequest TablePull() {
  static const std::vector<int64_t> keys = [] {
    std::vector<int64_t> drawn(kFloodKeys);
    std::mt19937_64 random(11);
    for (int64_t& key : drawn) key = static_cast<int64_t>(random() % kKeys);
    return drawn;
  }();
  wire::PullRequest request = SmallPull();
  request.items[0].variable = "t";
  request.items[0].selection = wire::Selection::KEYS;
  request.items[0].ids = Payload::ViewOf<int64_t>(keys);
  return request;
}

double RoundSeconds() { return absl::GetFlag(FLAGS_round_seconds); }

// The median over rounds of the p99, for callers that pause 5 ms between calls.
double PacedP99(Crowd& crowd) {
  std::vector<double> found;
  for (int i = 0; i < absl::GetFlag(FLAGS_rounds); ++i) {
    found.push_back(Quantile(crowd.Run(RoundSeconds(), 0.005).seconds, 0.99));
  }
  return Quantile(found, 0.5);
}

void MeasureIdle(const char* name) {
  const int count = AllowConnections(absl::GetFlag(FLAGS_idle));
  const Server server({});
  Crowd others(server.port(), SmallPull(), kFew);
  const double before = PacedP99(others);
  const int64_t resident = server.ResidentBytes();
  double with = 0;
  double each = 0;
  {
    Crowd idle(server.port(), SmallPull(), count);
    idle.CallOnce();
    with = PacedP99(others);
    each = static_cast<double>(server.ResidentBytes() - resident) / count / 1024;
  }
  const double after = PacedP99(others);
  const double ratio = with / std::max(1e-9, (before + after) / 2);
  std::printf(
      "{\"name\": \"%s\", \"connections\": %d, \"kib_each\": %.1f, \"bar\": \"<= 64\", "
      "\"met\": %s, \"others_p99_microseconds\": %.0f, \"without_before\": %.0f, "
      "\"without_after\": %.0f, \"p99_ratio\": %.2f, \"verified\": %s}\n",
      name, count, each, each <= 64 ? "true" : "false", with * 1e6, before * 1e6, after * 1e6,
      ratio, others.wrong() == 0 ? "true" : "false");
}

void MeasureTlsIdle(const char* name) {
  const int count = AllowConnections(absl::GetFlag(FLAGS_tls_idle));
  TestCertificates certificates;
  const SecurityOptions own = certificates.Issue(TestCertificates::ServerRequest());
  const WireClientOptions client{
      .security = ClientSecurity::Load(
                      certificates.Issue(TestCertificates::ClientRequest("bench", kWorker)))
                      .value()};
  const Server server(
      {absl::StrCat("--tls_certificate=", own.tls_certificate),
       absl::StrCat("--tls_key=", own.tls_key), absl::StrCat("--tls_ca=", own.tls_ca)},
      client);
  const wire::PullRequest call = LargePull();
  std::vector<std::unique_ptr<WireClient>> idle;
  const int64_t resident = server.ResidentBytes();
  for (int i = 0; i < count; ++i) {
    idle.push_back(WireClient::Connect(server.process->address(), client, Soon()).value());
    wire::PullReply reply;
    Require(idle.back()->Call("pull", Soon(), [&](auto& stub) { stub.pull(reply, call); }));
  }
  const double each = static_cast<double>(server.ResidentBytes() - resident) / count / 1024;
  std::printf(
      "{\"name\": \"%s\", \"connections\": %d, \"kib_each\": %.1f, \"bar\": \"<= 64\", "
      "\"met\": %s}\n",
      name, count, each, each <= 64 ? "true" : "false");
}

// A few callers and many callers of one server.
class Crowds {
 public:
  Crowds(int port, const wire::PullRequest& call)
      : few_(port, call, kFew), many_(port, call, absl::GetFlag(FLAGS_busy)) {
    few_.Run(RoundSeconds() / 4);
    many_.Run(RoundSeconds() / 4);
  }

  Round RunFew() { return few_.Run(RoundSeconds()); }
  Round RunMany() { return many_.Run(RoundSeconds()); }
  size_t call_bytes() const { return few_.call_bytes(); }
  const std::string& reply() const { return few_.reply(); }
  bool verified() const { return few_.wrong() + many_.wrong() == 0; }

 private:
  Crowd few_, many_;
};

// Compared with a server that sends the same bytes and does nothing else: the limit that sockets
// and caches set.
void MeasureBusy(const char* name, const wire::PullRequest& call) {
  const Server server({});
  Crowds crowds(server.port(), call);
  const RawServer raw_server(crowds.call_bytes(), crowds.reply(),
                             static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  Crowds raw(raw_server.port(), call);
  std::vector<double> ratios, raw_ratios, cpu, cpu_ratios, few_rates, many_rates, p99;
  int64_t refused = 0;
  for (int i = 0; i < absl::GetFlag(FLAGS_rounds); ++i) {
    const double start = server.CpuSeconds();
    const Round few = crowds.RunFew();
    const double middle = server.CpuSeconds();
    const Round many = crowds.RunMany();
    const double end = server.CpuSeconds();
    few_rates.push_back(few.rate());
    many_rates.push_back(many.rate());
    cpu.push_back((end - middle) / static_cast<double>(many.seconds.size()));
    cpu_ratios.push_back(cpu.back() / ((middle - start) / static_cast<double>(few.seconds.size())));
    p99.push_back(Quantile(many.seconds, 0.99));
    refused += many.refused;
    ratios.push_back(many_rates.back() / few_rates.back());
    const double raw_few = raw.RunFew().rate();
    raw_ratios.push_back(raw.RunMany().rate() / raw_few);
  }
  const double ratio = Quantile(ratios, 0.5);
  std::printf(
      "{\"name\": \"%s\", \"ratio\": %.3f, \"bar\": \">= 0.90\", \"met\": %s, "
      "\"raw_sockets_ratio\": %.3f, \"connections\": %d, \"calls_per_second\": %.0f, "
      "\"of_%d\": %.0f, \"server_cpu_microseconds\": %.1f, \"server_cpu_ratio\": %.2f, "
      "\"reply_bytes\": %zu, \"p99_milliseconds\": %.1f, \"refused\": %lld, \"verified\": %s}\n",
      name, ratio, ratio >= 0.9 ? "true" : "false", Quantile(raw_ratios, 0.5),
      absl::GetFlag(FLAGS_busy), Quantile(many_rates, 0.5), kFew, Quantile(few_rates, 0.5),
      Quantile(cpu, 0.5) * 1e6, Quantile(cpu_ratios, 0.5), crowds.reply().size(),
      Quantile(p99, 0.5) * 1e3, static_cast<long long>(refused),
      crowds.verified() && raw.verified() ? "true" : "false");
}

// With --admits the server keeps its queue short, so that accepted calls wait behind few others.
void MeasureFlood(const char* name) {
  const auto cores = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::string> flags;
  if (absl::GetFlag(FLAGS_admits)) {
    flags = {absl::StrCat("--serving_threads=", cores), "--max_queued_calls=1"};
  }
  const Server server(flags);
  Crowd one(server.port(), TablePull(), 1);
  Crowd flood(server.port(), TablePull(), absl::GetFlag(FLAGS_flood));
  flood.Run(RoundSeconds() / 4);
  std::vector<double> ratios, unloaded, loaded, rates, refused;
  for (int i = 0; i < absl::GetFlag(FLAGS_rounds); ++i) {
    unloaded.push_back(Quantile(one.Run(RoundSeconds()).seconds, 0.99));
    const Round round = flood.Run(RoundSeconds());
    loaded.push_back(Quantile(round.seconds, 0.99));
    rates.push_back(round.rate());
    refused.push_back(static_cast<double>(round.refused) / round.length);
    ratios.push_back(loaded.back() / unloaded.back());
  }
  const double ratio = Quantile(ratios, 0.5);
  std::printf(
      "{\"name\": \"%s\", \"ratio\": %.2f, \"bar\": \"<= 3\", \"met\": %s, \"callers\": %d, "
      "\"p99_milliseconds\": %.2f, \"unloaded_p99_milliseconds\": %.2f, "
      "\"accepted_per_second\": %.0f, \"refused_per_second\": %.0f, \"verified\": %s}\n",
      name, ratio, ratio <= 3 ? "true" : "false", absl::GetFlag(FLAGS_flood),
      Quantile(loaded, 0.5) * 1e3, Quantile(unloaded, 0.5) * 1e3, Quantile(rates, 0.5),
      Quantile(refused, 0.5), one.wrong() + flood.wrong() == 0 ? "true" : "false");
}

int Main() {
  const std::string wanted = absl::GetFlag(FLAGS_row);
  const auto row = [&](const char* name, const auto& measure) {
    if (!wanted.empty() && wanted != name) return;
    measure(name);
    std::fflush(stdout);
  };
  row("idle", MeasureIdle);
  row("idle_tls", MeasureTlsIdle);
  row("busy_1KiB", [](const char* name) { MeasureBusy(name, SmallPull()); });
  row("busy_256KiB", [](const char* name) { MeasureBusy(name, LargePull()); });
  row("flood", MeasureFlood);
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return cairn::Main();
}
