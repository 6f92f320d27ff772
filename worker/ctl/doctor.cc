#include "worker/ctl/doctor.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/config/cluster_config.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/local_gpus.h"
#include "common/status.h"
#include "common/write_all.h"
#include "thrift/limits.h"
#include "thrift/security/client_security.h"
#include "worker/collective/nccl_ranks.h"
#include "worker/ctl/doctor_tls.h"
#include "worker/ctl/human_text.h"
#include "worker/ctl/local_ports.h"
#include "worker/ctl/server_view.h"
#include "worker/ops/dense.h"
#include "worker/ops/device_queue.h"

namespace cairn {
namespace {

using Level = Finding::Level;

// One file per connection, and a margin for RocksDB's tables.
constexpr uint64_t kWantedFiles = static_cast<uint64_t>(kDefaultMaxConnections) + 512;
constexpr uint64_t kNeededFiles = 256;
constexpr size_t kWriteBytes = size_t{64} << 20;
constexpr int kSyncs = 20;
// A snapshot syncs once; log_sync syncs once for each group of pushes.
constexpr double kSlowSyncSeconds = 0.05;
constexpr double kSlowBytesPerSecond = 50e6;
constexpr int64_t kLittleSpaceBytes = int64_t{5} << 30;

std::string LevelName(Level level) {
  return level == Level::kFine ? "ok" : level == Level::kWarning ? "warning" : "bad";
}

Finding OpenFiles() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return JudgeOpenFiles(limit.rlim_max);  // cairn-ps raises its own soft limit
}

Finding Memory() {
  struct sysinfo info = {};
  sysinfo(&info);
  const int64_t total = static_cast<int64_t>(info.totalram) * info.mem_unit;
  Finding finding{.what = "memory", .found = absl::StrCat(BytesText(total), " in this machine")};
  if (total < int64_t{2} << 30) {
    finding.level = Level::kWarning;
    finding.fix = "enough for small variables only: set --memory_budget_bytes to the free memory";
  }
  return finding;
}

Finding Space(const std::string& directory) {
  struct statvfs stat = {};
  Finding finding{.what = "disk space"};
  if (statvfs(directory.c_str(), &stat) != 0) {
    return {Level::kBad, "disk space", absl::StrCat(directory, ": ", std::strerror(errno)),
            "name an existing directory by --data_dir"};
  }
  const int64_t bytes = static_cast<int64_t>(stat.f_bavail) * static_cast<int64_t>(stat.f_frsize);
  finding.found = absl::StrCat(BytesText(bytes), " free at ", directory);
  if (bytes < kLittleSpaceBytes) {
    finding.level = Level::kWarning;
    finding.fix = "a server refuses pushes once its disk is full: free some, or choose another";
  }
  return finding;
}

struct DiskRate {
  double bytes_per_second = 0;
  double sync_seconds = 0;  // the median duration of a small write
};

absl::StatusOr<DiskRate> MeasureDisk(const std::string& directory) {
  std::string path = absl::StrCat(directory, "/.cairn-doctor.XXXXXX");
  const int file = mkstemp(path.data());
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("making a file in ", directory));
  const auto close_file = absl::MakeCleanup([&] {
    close(file);
    unlink(path.c_str());
  });
  DiskRate rate;
  absl::Duration begin = MonotonicNow();
  // Varies the blocks: some file systems deduplicate equal ones.
  std::string block(size_t{4} << 20, '\0');
  for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<char>(i * 131 >> 3);
  for (size_t done = 0; done < kWriteBytes; done += block.size()) {
    if (!WriteAll(file, block)) return absl::ErrnoToStatus(errno, "writing");
  }
  if (fsync(file) != 0) return absl::ErrnoToStatus(errno, "syncing");
  rate.bytes_per_second =
      static_cast<double>(kWriteBytes) / absl::ToDoubleSeconds(MonotonicNow() - begin);
  std::array<double, kSyncs> seconds = {};
  for (double& one : seconds) {
    begin = MonotonicNow();
    if (!WriteAll(file, "one record of a log")) return absl::ErrnoToStatus(errno, "writing");
    if (fdatasync(file) != 0) return absl::ErrnoToStatus(errno, "syncing");
    one = absl::ToDoubleSeconds(MonotonicNow() - begin);
  }
  std::nth_element(seconds.begin(), seconds.begin() + kSyncs / 2, seconds.end());
  rate.sync_seconds = seconds[kSyncs / 2];
  return rate;
}

Finding Disk(const std::string& directory) {
  const absl::StatusOr<DiskRate> rate = MeasureDisk(directory);
  if (rate.ok()) return JudgeDisk(directory, rate->bytes_per_second, rate->sync_seconds);
  return {Level::kBad, "disk", absl::StrCat(directory, ": ", rate.status().message()),
          "name a writable directory by --data_dir, or check its disk"};
}

// The state of CUDA and cuBLAS. A worker also begins by opening a queue.
absl::Status CudaStatus() {
  RETURN_IF_ERROR(GpuStatus());
  ASSIGN_OR_RETURN(const std::unique_ptr<DeviceQueue> queue, OpenGpuQueue(Gpu(0)));
  return queue->PrepareProducts();
}

Finding Products() {
  return {Level::kFine, "products", absl::StrCat("OpenBLAS uses its kernels for ", BlasProcessor()),
          ""};
}

Finding Gpus() {
  const int32_t files = LocalGpuCount();
  return JudgeGpus(files, files == 0 ? absl::OkStatus() : CudaStatus(), NcclStatus());
}

// Checks a ps task's address: a server answers or refuses, the port is free on this machine, or
// neither. `cluster_runs`: another server answers.
Finding Server(const ServerView& view, bool cluster_runs) {
  Finding finding{.what = view.name};
  if (view.status.ok()) {
    finding.found = absl::StrCat("answers, up ", SecondsText(view.described.uptime_seconds));
    return finding;
  }
  if (IsRefusal(view.status)) {
    return {Level::kBad, view.name, std::string(view.status.message()),
            "the server runs and refuses this command: give or change what the message names"};
  }
  LocalPorts ports;
  const absl::Status held = ports.Hold(view.address, /*must_be_free=*/true).status();
  if (held.ok() && !cluster_runs) {
    finding.found = "is not started; the port is free on this machine";
    return finding;
  }
  finding.level = Level::kBad;
  if (held.ok()) {
    finding.found = "is not started, and other servers of the cluster are";
    finding.fix = "start cairn-ps there, on its --data_dir if it ran before: workers wait for it";
  } else if (absl::IsAlreadyExists(held)) {
    finding.found =
        absl::StrCat("the process that listens there is not cairn-ps, or does not respond: ",
                     view.status.message());
    finding.fix = "end it (ss -ltnp names the process), or give the task another port";
  } else {
    finding.found = std::string(view.status.message());
    finding.fix = "start cairn-ps there, and see that firewalls let the port through";
  }
  return finding;
}

// Reports jobs of which the servers hold different states.
void AddJobs(Target target, const std::vector<ServerView>& servers,
             std::vector<Finding>* findings) {
  std::set<std::string> jobs;
  for (const ServerView& server : servers) {
    jobs.insert(server.described.jobs.begin(), server.described.jobs.end());
  }
  for (const std::string& job : jobs) {
    target.job = job;
    const absl::Status wrong = AnythingWrong(job, AskServers(target));
    if (!absl::IsDataLoss(wrong)) continue;
    findings->push_back({Level::kBad, "jobs", std::string(wrong.message()),
                         "until then its workers refuse to train"});
  }
}

// Adds the findings about TLS files, then about the servers, which are not called if the files are
// bad.
absl::Status AddServers(const DoctorOptions& options, std::vector<Finding>* findings) {
  ClusterConfig cluster;
  if (!options.cluster_file.empty()) {
    ASSIGN_OR_RETURN(cluster, ReadClusterFile(options.cluster_file));
  }
  const std::vector<Finding> tls = JudgeTls(options.security, cluster, absl::Now());
  findings->insert(findings->end(), tls.begin(), tls.end());
  const bool usable = ClientSecurity::Load(options.security).ok();
  if (options.cluster_file.empty() || !usable) return absl::OkStatus();
  // The job's name does not matter here.
  ASSIGN_OR_RETURN(const Target target, ResolveTarget({.cluster_file = options.cluster_file,
                                                       .job = "doctor",
                                                       .timeout_seconds = options.timeout_seconds,
                                                       .security = options.security}));
  const std::vector<ServerView> servers = AskServers(target);
  const bool runs = std::any_of(servers.begin(), servers.end(),
                                [](const ServerView& server) { return server.status.ok(); });
  for (const ServerView& server : servers) findings->push_back(Server(server, runs));
  if (AnyMissing(servers).ok()) AddJobs(target, servers, findings);
  return absl::OkStatus();
}

}  // namespace

Finding JudgeOpenFiles(uint64_t limit) {
  Finding finding{
      .what = "open files",
      .found = absl::StrCat(limit == RLIM_INFINITY ? "no limit" : absl::StrCat(limit, " at most"))};
  if (limit >= kWantedFiles) return finding;
  finding.level = limit < kNeededFiles ? Level::kBad : Level::kWarning;
  finding.fix = absl::StrCat("a server with many connections needs ", kWantedFiles, ": ulimit -Hn ",
                             kWantedFiles, " (or LimitNOFILE of its unit)");
  return finding;
}

Finding JudgeDisk(const std::string& directory, double bytes_per_second, double sync_seconds) {
  Finding finding{.what = "disk",
                  .found = absl::StrFormat("%.0f MB/s, fsync %.2f ms at %s", bytes_per_second / 1e6,
                                           sync_seconds * 1e3, directory)};
  if (bytes_per_second >= kSlowBytesPerSecond && sync_seconds <= kSlowSyncSeconds) return finding;
  finding.level = Level::kWarning;
  finding.fix = sync_seconds > kSlowSyncSeconds
                    ? "slow to sync: avoid --durability log_sync here, or choose a local disk"
                    : "slow to write: lengthen --snapshot_interval_seconds, or choose a local disk";
  return finding;
}

Finding JudgeGpus(int32_t files, const absl::Status& cuda, const absl::Status& nccl) {
  if (files == 0) return {Level::kFine, "GPUs", "none; workers compute on CPUs", ""};
  if (!cuda.ok()) {
    return {Level::kWarning, "GPUs", absl::StrCat(files, ", but workers compute on CPUs"),
            std::string(cuda.message())};
  }
  if (nccl.ok()) return {Level::kFine, "GPUs", absl::StrCat(files, ", and NCCL is there"), ""};
  return {Level::kWarning, "GPUs", absl::StrCat(files, ", but no NCCL"),
          std::string(nccl.message())};
}

Answer DoctorAnswer(const std::vector<Finding>& findings) {
  Answer answer;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  int bad = 0;
  std::string text;
  for (const Finding& finding : findings) {
    const std::string level = LevelName(finding.level);
    list.push_back(
        {{"level", level}, {"what", finding.what}, {"found", finding.found}, {"fix", finding.fix}});
    absl::StrAppendFormat(&text, "%-8s %s: %s\n", level, finding.what, finding.found);
    if (!finding.fix.empty()) absl::StrAppend(&text, "         -> ", finding.fix, "\n");
    if (finding.level == Level::kBad) ++bad;
  }
  answer.text = std::move(text);
  answer.json = {{"ok", bad == 0}, {"findings", std::move(list)}};
  if (bad > 0) {
    answer.problem = FailedPrecondition(bad, bad == 1 ? " thing is" : " things are",
                                        " bad; each has its fix above");
  }
  return answer;
}

absl::StatusOr<Answer> RunDoctor(const DoctorOptions& options) {
  const std::string directory = options.directory.empty() ? "." : options.directory;
  std::vector<Finding> findings = {OpenFiles(),     Memory(),   Space(directory),
                                   Disk(directory), Products(), Gpus()};
  RETURN_IF_ERROR(AddServers(options, &findings));
  return DoctorAnswer(findings);
}

}  // namespace cairn
