#include "tests/simulator/simulation.h"

#include <glog/logging.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "tests/simulator/client.h"
#include "tests/simulator/mover.h"
#include "tests/simulator/network.h"
#include "tests/simulator/observer.h"
#include "tests/simulator/server.h"
#include "tests/simulator/statistics.h"
#include "thrift/errors.h"

namespace cairn::simulator {
namespace {

constexpr Nanos kRestartPause = kSecond;  // before a launcher restarts a process
// Time to settle after the last fault: more than the longest outage that a client survives plus a
// lease.
constexpr Nanos kSettle = 200 * kSecond;

class Simulation {
 public:
  explicit Simulation(const Options& options)
      : options_(options),
        work_(options),
        observer_(options, work_),
        network_(options, &observer_),
        random_(options.seed, 3),
        pace_(options.seed, 4),
        moves_(options.seed, 5),
        members_(options.seed, 6),
        workers_(options.workers) {}

  Result Run();

 private:
  struct Worker {
    std::shared_ptr<Process> process;  // of the latest start
    std::shared_ptr<Client> client;
    double slow = 1;
    int32_t running = 0;  // running processes, including replaced ones
    bool replaced = false;
    bool done = false;
    const char* does = "nothing";
    Nanos since = 0;
  };
  using Kind = void (Simulation::*)();

  void StartServers();
  void MakeServer();
  bool ServersAreUp() const;
  int64_t ClockOf(int32_t w) const;
  void StartWorker(int32_t w);
  void EndProcess(const std::shared_ptr<Process>& process);
  // The main fiber of a process.
  void Train(int32_t w, const std::shared_ptr<Process>& process,
             const std::shared_ptr<Client>& client);
  absl::Status TakeSteps(int32_t w, Process& process, Client& client);
  void Ended(int32_t w, const absl::Status& status);
  void StartAgain(int32_t w, Nanos pause);
  bool MayEnd(int32_t w) const;
  void Does(int32_t w, const Process& process, const char* what);

  // Schedules faults of a kind: `per_hour` per host, for `hosts` hosts.
  void Plan(double per_hour, int32_t hosts, Kind kind);
  void CrashServer();
  void CrashWorker();
  void Zombie();
  void Partition();
  void SlowHost();
  void MassRestart();
  void RestartServer(int32_t server, bool machine);
  // Starts a tool that moves rows, which may be killed.
  void StartMover();
  std::shared_ptr<Process> NewMover();
  void MoverEnded(const absl::Status& status);
  // Starts a tool that makes a server join or leave.
  void StartMemberTool();
  absl::Status ChangeMembers(Mover& tool);
  void KillLater(const std::shared_ptr<Process>& process, double chance, Random& random);
  // After all workers are done: a move without faults must succeed, regardless of unfinished moves.
  void LastMove();
  // Runs `body` in a fiber and waits for its end.
  absl::Status RunInFiber(absl::FunctionRef<absl::Status()> body);
  // Checks that every server has the newest map and its rows.
  void CheckMaps();
  Nanos Outage() { return kSecond + random_.Below(options_.faults.longest_outage); }
  int32_t AnyWorker() { return static_cast<int32_t>(random_.Below(options_.workers)); }
  int32_t AnyServer() {
    return static_cast<int32_t>(random_.Below(static_cast<int64_t>(servers_.size())));
  }

  void Show(absl::string_view what) const;
  std::string Stuck();
  void CheckDurable();
  void Finish();

  const Options& options_;
  const Workload work_;
  Scheduler scheduler_;
  Observer observer_;
  Network network_;
  Random random_, pace_, moves_, members_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<Worker> workers_;
  std::vector<std::shared_ptr<Process>> movers_;  // running
  bool changing_members_ = false;
  int64_t processes_ = 0;
  int64_t retries_ = 0;
  int32_t done_ = 0;
  Nanos faults_until_ = 0;
  bool finishing_ = false;
};

void Simulation::MakeServer() {
  servers_.push_back(std::make_unique<Server>(static_cast<int32_t>(servers_.size()), options_,
                                              work_, &observer_,
                                              [this](CallPtr call) { network_.Answered(call); }));
  if (options_.consistency.mode != ConsistencyMode::kSsp) return;
  servers_.back()->clock_of = [this](int32_t w) { return ClockOf(w); };
}

void Simulation::StartServers() {
  for (int32_t s = 0; s < options_.servers; ++s) MakeServer();
  network_.SetServers(&servers_);
  for (const auto& server : servers_) server->Start();
}

bool Simulation::ServersAreUp() const {
  return std::all_of(servers_.begin(), servers_.end(),
                     [](const auto& server) { return server->up() || server->retired(); });
}

int64_t Simulation::ClockOf(int32_t w) const {
  const Worker& worker = workers_[w];
  const Process& process = *worker.process;
  const bool known =
      worker.running == 1 && process.alive && process.connected && process.unsure == 0;
  return known ? worker.client->clock() : -1;
}

void Simulation::Does(int32_t w, const Process& process, const char* what) {
  if (workers_[w].process.get() != &process) return;
  workers_[w].does = what;
  workers_[w].since = scheduler_.now();
}

void Simulation::StartWorker(int32_t w) {
  if (finishing_) return;
  ++observer_.worker_starts;
  ++workers_[w].running;
  auto process = std::make_shared<Process>();
  process->worker = w;
  process->number = ++processes_;
  auto client = std::make_shared<Client>(&network_, work_, process);
  workers_[w].process = process;
  workers_[w].client = client;
  scheduler_.Spawn("a worker", [this, w, process, client] { Train(w, process, client); });
}

void Simulation::EndProcess(const std::shared_ptr<Process>& process) {
  const bool trains = process->worker < options_.workers;
  if (process->alive && trains) --workers_[process->worker].running;
  process->alive = false;
  for (const CallPtr& call : process->waiting) scheduler_.Wake(call->waiter);
}

void Simulation::Train(int32_t w, const std::shared_ptr<Process>& process,
                       const std::shared_ptr<Client>& client) {
  Does(w, *process, "says hello");
  absl::Status status = client->Connect();
  if (status.ok()) {
    process->connected = true;
    status = TakeSteps(w, *process, *client);
  }
  retries_ += client->retries();
  const bool alive = process->alive;
  if (alive) EndProcess(process);
  client->Close();
  if (alive) Ended(w, status);
}

absl::Status Simulation::TakeSteps(int32_t w, Process& process, Client& client) {
  if (options_.sync()) {
    Does(w, process, "begins its first step");
    absl::Status status = client.BeginSteps();
    if (!status.ok()) return status;
  }
  while (process.alive && client.next() <= options_.steps) {
    if (options_.compute > 0) {
      Does(w, process, "computes");
      const double slow = workers_[w].slow * (0.8 + 0.4 * pace_.Unit());
      scheduler_.Sleep(static_cast<Nanos>(static_cast<double>(options_.compute) * slow));
    }
    Does(w, process, "pushes");
    absl::Status status = client.Step();
    if (!status.ok()) return status;
    observer_.Stepped();
    observer_.Trace(-1, w, client.next());
  }
  Does(w, process, "ends its steps");
  absl::Status status = client.EndSteps();
  if (!status.ok()) return status;
  Does(w, process, "leaves");
  return client.Leave();
}

void Simulation::Ended(int32_t w, const absl::Status& status) {
  Worker& worker = workers_[w];
  observer_.Trace(-2, w, static_cast<int64_t>(status.code()));
  if (status.ok()) {
    if (!worker.done) ++done_;
    worker.done = true;
    return;
  }
  if (ReasonOf(status) == wire::ErrorReason::FENCED) {
    ++observer_.fenced;
    // A delayed hello of an abandoned connection may be granted a newer incarnation than the one in
    // use.
    if (!worker.replaced) ++observer_.fenced_by_late_hello;
    // If rows leave a server before a worker has replayed its pushes there, that worker is fenced.
    if (!worker.replaced && options_.faults.resets == 0 && !options_.rows_move()) {
      observer_.Violation(absl::StrCat("the only start is fenced: ", status.ToString()));
    }
  } else if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    ++observer_.gave_up;  // after ps_wait: only a new start can resolve an unknown push
  } else {
    observer_.Violation(absl::StrCat("worker ", w, " fails: ", status.ToString()));
  }
  if (worker.running == 0) StartAgain(w, kRestartPause);
}

void Simulation::StartAgain(int32_t w, Nanos pause) {
  scheduler_.In(pause, [this, w] {
    if (workers_[w].running == 0 && !workers_[w].done) StartWorker(w);
  });
}

void Simulation::Plan(double per_hour, int32_t hosts, Kind kind) {
  if (per_hour <= 0) return;
  const double mean = 3600e9 / (per_hour * hosts);
  const auto wait = static_cast<Nanos>(std::min(mean * random_.Exponential(), 1e18));
  if (scheduler_.now() + wait >= faults_until_) return;
  scheduler_.In(wait, [this, per_hour, hosts, kind] {
    if (scheduler_.now() >= faults_until_) return;
    (this->*kind)();
    Plan(per_hour, hosts, kind);
  });
}

void Simulation::RestartServer(int32_t server, bool machine) {
  if (!servers_[server]->up()) return;
  observer_.Trace(-3, server, machine);
  Show(absl::StrCat("ps:", server, machine ? " ends with its machine" : " ends"));
  servers_[server]->Crash(machine, random_);
  if (options_.mutation == Mutation::kStaysAway) return;
  scheduler_.In(Outage(), [this, server] {
    if (!finishing_) servers_[server]->Start();
  });
}

void Simulation::Show(absl::string_view what) const {
  if (!options_.show) return;
  std::fprintf(stderr, "%10.3f ms %s\n", static_cast<double>(scheduler_.now()) / kMillisecond,
               std::string(what).c_str());
}

void Simulation::CrashServer() { RestartServer(AnyServer(), random_.Chance(0.5)); }

bool Simulation::MayEnd(int32_t w) const {
  // Under sync a start that finds all other workers gone waits for all workers of a new run
  // (ps_server/SYNC.md).
  if (options_.sync() && done_ > 0) return false;
  return !workers_[w].done && workers_[w].process->alive;
}

void Simulation::CrashWorker() {
  const int32_t w = AnyWorker();
  if (!MayEnd(w)) return;
  observer_.Trace(-4, w, 0);
  Show(absl::StrCat("worker ", w, " ends"));
  EndProcess(workers_[w].process);
  StartAgain(w, Outage());
}

void Simulation::Zombie() {
  const int32_t w = AnyWorker();
  if (!MayEnd(w)) return;
  observer_.Trace(-5, w, 0);
  Show(absl::StrCat("worker ", w, " is started again while its process runs"));
  workers_[w].replaced = true;
  StartWorker(w);
}

void Simulation::Partition() {
  const int64_t one_in = 2 + random_.Below(std::min<int64_t>(options_.servers, 20));
  observer_.Trace(-6, one_in, 0);
  network_.Part(scheduler_.now() + Outage(), random_.Bits(), one_in);
}

void Simulation::SlowHost() {
  constexpr double kSlow = 10;
  if (random_.Chance(0.5)) {
    Server* const server = servers_[AnyServer()].get();
    server->SetSlow(kSlow);
    scheduler_.In(3 * Outage(), [server] { server->SetSlow(1); });
  } else {
    Worker* const worker = &workers_[AnyWorker()];
    worker->slow = kSlow;
    scheduler_.In(3 * Outage(), [worker] { worker->slow = 1; });
  }
}

void Simulation::MassRestart() {
  observer_.mass_restart_at = scheduler_.now();
  for (size_t s = 0; s < servers_.size(); ++s) {
    RestartServer(static_cast<int32_t>(s), /*machine=*/false);
  }
}

std::string Simulation::Stuck() {
  std::vector<std::string> lines;
  for (int32_t w = 0; w < options_.workers && lines.size() < 20; ++w) {
    const Worker& worker = workers_[w];
    if (worker.done) continue;
    std::string line =
        absl::StrCat("worker ", w, ", whose next push is ", worker.client->next(), ", ",
                     worker.does, " since ", worker.since / kMillisecond, " ms");
    if (!worker.process->alive) line += "; its process has ended";
    for (const CallPtr& call : worker.process->waiting) {
      absl::StrAppend(&line, "; it waits for ps:", call->server);
    }
    for (const int32_t server : worker.process->unreached) {
      absl::StrAppend(&line, "; ps:", server, " does not answer it");
    }
    lines.push_back(std::move(line));
  }
  for (const auto& server : servers_) {
    for (std::string& text : server->Waits()) {
      if (lines.size() < 40) lines.push_back(std::move(text));
    }
  }
  return absl::StrCat(done_, " of ", options_.workers, " workers are done:\n  ",
                      absl::StrJoin(lines, "\n  "));
}

std::shared_ptr<Process> Simulation::NewMover() {
  auto process = std::make_shared<Process>();
  process->number = ++processes_;
  process->worker = options_.workers + static_cast<int32_t>(process->number);
  movers_.push_back(process);
  return process;
}

void Simulation::StartMover() {
  // A later mover aborts an earlier one, so some runs have only one mover at a time, and complete
  // more moves.
  const size_t most = 1 + options_.seed % 3;
  if (options_.servers < 2 || movers_.size() >= most) return;
  const std::shared_ptr<Process> process = NewMover();
  ++observer_.movers;
  observer_.Trace(-7, process->number, 0);
  scheduler_.Spawn("a mover", [this, process] {
    const absl::Status status = Mover(&network_, process).MoveSome(moves_);
    if (status.ok()) ++observer_.moves;
    MoverEnded(status);
    std::erase(movers_, process);
  });
  KillLater(process, options_.moves.killed, moves_);
}

void Simulation::KillLater(const std::shared_ptr<Process>& process, double chance, Random& random) {
  if (!random.Chance(chance)) return;
  scheduler_.In(random.Below(2 * kSecond), [this, process] {
    if (process->alive) Show(absl::StrCat("mover ", process->worker, " ends"));
    EndProcess(process);
  });
}

void Simulation::StartMemberTool() {
  if (changing_members_) return;
  changing_members_ = true;
  const std::shared_ptr<Process> process = NewMover();
  observer_.Trace(-9, process->number, 0);
  scheduler_.Spawn("a tool for members", [this, process] {
    Mover tool(&network_, process);
    MoverEnded(ChangeMembers(tool));
    std::erase(movers_, process);
    changing_members_ = false;
  });
  KillLater(process, options_.members.killed, members_);
}

absl::Status Simulation::ChangeMembers(Mover& tool) {
  absl::Status status = tool.Learn();
  if (!status.ok()) return status;
  const int32_t next = tool.next_index();
  const bool few = tool.servers().size() < 3;
  if (next < options_.most_servers() && (few || members_.Chance(0.5))) {
    if (static_cast<size_t>(next) == servers_.size()) {
      MakeServer();
      servers_.back()->Start();
      scheduler_.Sleep(kSecond);
    }
    return tool.Add(next, members_);
  }
  if (few) return absl::OkStatus();
  const auto others = static_cast<int64_t>(tool.servers().size()) - 1;
  const int32_t server = tool.servers()[1 + members_.Below(others)];
  status = tool.Remove(server, members_);
  if (!status.ok()) return status;
  Show(absl::StrCat("ps:", server, " has left"));
  scheduler_.In(members_.Below(10 * kSecond), [this, server] {
    if (!finishing_) servers_[server]->Retire(random_);
  });
  return status;
}

void Simulation::MoverEnded(const absl::Status& status) {
  observer_.Trace(-8, static_cast<int64_t>(status.code()), 0);
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kCancelled:           // the mover was killed
    case absl::StatusCode::kUnavailable:         // a server is down
    case absl::StatusCode::kDeadlineExceeded:    // … or unreachable
    case absl::StatusCode::kFailedPrecondition:  // … or restarted; or a later mover took over
      return;
    default: observer_.Violation(absl::StrCat("a mover fails: ", status.ToString()));
  }
}

absl::Status Simulation::RunInFiber(absl::FunctionRef<absl::Status()> body) {
  bool ended = false;
  absl::Status status;
  scheduler_.Spawn("the end", [&] {
    status = body();
    ended = true;
  });
  scheduler_.Run(scheduler_.now() + kSettle, [&] { return ended; });
  CHECK(ended) << "a fiber that does not end refers to this stack";
  return status;
}

void Simulation::LastMove() {
  constexpr Nanos kQuiet = 30 * kSecond;  // longer than an outage and any late message
  if (!options_.rows_move() || options_.servers < 2 || !observer_.violation().empty()) return;
  faults_until_ = scheduler_.now();
  network_.SetResets(0);
  for (const auto& server : servers_) server->SetSlow(1);
  for (const auto& process : movers_) EndProcess(process);
  scheduler_.Run(scheduler_.now() + kQuiet, [this] { return !observer_.violation().empty(); });
  if (!ServersAreUp()) return observer_.Violation("servers do not start");
  Mover mover(&network_, NewMover());
  const absl::Status status = RunInFiber([&] {
    absl::Status left = mover.Learn();
    if (left.ok() && options_.members.tools > 0) left = mover.RemoveClosed();
    return left.ok() ? mover.MoveSome(moves_) : left;
  });
  if (!status.ok()) observer_.Violation(absl::StrCat("the last mover fails: ", status.ToString()));
}

void Simulation::CheckMaps() {
  Mover mover(&network_, NewMover());
  const absl::Status status = RunInFiber([&] {
    const absl::Status learned = mover.Learn();
    return learned.ok() ? mover.Finish() : learned;
  });
  if (!status.ok()) observer_.Violation(absl::StrCat("the last move stays: ", status.ToString()));
  std::shared_ptr<Variable> newest;
  for (const int32_t s : mover.servers()) {
    const std::shared_ptr<Variable> table = servers_[s]->table();
    if (table == nullptr) continue;
    if (newest == nullptr) newest = table;
    if (table->spec() == newest->spec()) continue;
    observer_.Violation(absl::StrCat("maps: two servers have versions ", table->spec().map_version,
                                     " and ", newest->spec().map_version,
                                     ", with different placements"));
  }
  for (int32_t b = 0; b < work_.stripes(); ++b) {
    for (int32_t s = 0; s < static_cast<int32_t>(servers_.size()); ++s) {
      const std::shared_ptr<Variable> table = servers_[s]->table();
      const bool there = table != nullptr && table->table() != nullptr &&
                         table->table()->stripe(static_cast<uint32_t>(b)) != nullptr;
      if (there == (newest->spec().bucket_ps[b] == s)) continue;
      observer_.Violation(absl::StrCat("maps: bucket ", b,
                                       " is of ps:", newest->spec().bucket_ps[b], "; ps:", s,
                                       there ? " has it" : " does not have it"));
    }
  }
}

// Checks that all pushes of workers that left are on disk: every machine crashes, so nothing else
// survives.
void Simulation::CheckDurable() {
  if (!observer_.violation().empty()) return;
  for (const auto& server : servers_) {
    server->Crash(/*machine=*/true, random_);
    server->Start();
  }
  if (!scheduler_.Run(scheduler_.now() + kSettle, [this] { return ServersAreUp(); })) {
    return observer_.Violation("servers do not start");
  }
  if (options_.rows_move()) CheckMaps();
  for (const auto& server : servers_) {
    if (!server->retired()) server->CheckEverything(options_.steps);
  }
  if (options_.sync()) observer_.CheckAllCount();
}

// Lets every fiber end, so that no stack holds objects.
void Simulation::Finish() {
  finishing_ = true;
  for (const auto& server : servers_) server->Crash(/*machine=*/false, random_);
  for (Worker& worker : workers_) {
    if (worker.process != nullptr) EndProcess(worker.process);
  }
  for (const auto& process : movers_) EndProcess(process);
  const bool ended = scheduler_.Run(kForever, [this] { return scheduler_.fibers() == 0; });
  if (!ended) observer_.Violation("fibers remain that no event can wake");
}

Result Simulation::Run() {
  const auto begin = std::chrono::steady_clock::now();
  const Nanos expected = ExpectedTime(options_);
  faults_until_ = expected;
  StartServers();
  for (int32_t w = 0; w < options_.workers; ++w) StartWorker(w);
  const Faults& faults = options_.faults;
  network_.SetResets(faults.resets);
  scheduler_.At(faults_until_, [this] { network_.SetResets(0); });
  Plan(faults.server_crashes, options_.servers, &Simulation::CrashServer);
  Plan(faults.worker_crashes, options_.workers, &Simulation::CrashWorker);
  Plan(faults.worker_zombies, options_.workers, &Simulation::Zombie);
  Plan(faults.partitions, options_.servers, &Simulation::Partition);
  Plan(faults.slow_hosts, options_.servers, &Simulation::SlowHost);
  Plan(options_.moves.movers, 1, &Simulation::StartMover);
  Plan(options_.members.tools, 1, &Simulation::StartMemberTool);
  if (faults.mass_restart) scheduler_.At(expected / 2, [this] { MassRestart(); });
  const auto over = [this] { return done_ == options_.workers || !observer_.violation().empty(); };
  if (!scheduler_.Run(2 * expected + kSettle, over)) {
    observer_.Violation(absl::StrCat("no end: ", Stuck()));
  }
  Result result;
  result.simulated_seconds = static_cast<double>(scheduler_.now()) / kSecond;
  FillStatistics(options_, observer_, scheduler_.now(), &result);
  LastMove();
  CheckDurable();
  for (const auto& server : servers_) result.epochs += server->epochs();
  result.violation = observer_.violation();
  result.rows_checked = observer_.rows_checked;
  result.retries = retries_;
  result.events = scheduler_.events();
  Finish();
  if (result.violation.empty()) result.violation = observer_.violation();
  if (!result.violation.empty()) {
    absl::StrAppend(&result.violation, "\n  reproduce: ", options_.CommandLine());
  }
  result.trace_hash = observer_.trace_hash();
  result.wall_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

}  // namespace

Result Simulate(const Options& options) {
  // To Abseil all fibers are one thread, which seems to hold the locks of every fiber.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return Simulation(options).Run();
}

}  // namespace cairn::simulator
