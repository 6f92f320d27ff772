#include "worker/trainer/run_start.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/status.h"

namespace cairn {
namespace {

// `last`: of the run before.
RunStart Begin(const JobConfig& job, int64_t run, int64_t first_epoch, const RunPosition& last,
               uint64_t digest) {
  RunStart start;
  start.position.run = run;
  start.position.first_epoch = start.position.epoch = first_epoch;
  start.position.total_steps = last.total_steps;
  start.position.start = last.start;
  start.position.data_digest = digest;
  start.end_epoch = first_epoch + job.data.epochs;
  return start;
}

std::string Amount(const JobConfig& job) {
  std::string text = absl::StrCat(job.data.epochs, job.data.epochs == 1 ? " epoch" : " epochs");
  if (job.data.max_steps > 0) absl::StrAppend(&text, ", at most ", job.data.max_steps, " steps");
  return text;
}

RunStart Continue(const JobConfig& job, const RunPosition& stored, uint64_t digest) {
  RunStart start;
  start.position = stored;
  start.end_epoch = stored.first_epoch + job.data.epochs;
  start.log_line = absl::StrCat("job '", job.name, "': continues run ", stored.run, " after step ",
                                stored.total_steps, ", in epoch ", stored.epoch + 1, " of ",
                                start.end_epoch, " after row ", stored.row);
  if (stored.data_digest != digest) {
    start.position.data_digest = digest;
    start.position.row = 0;
    absl::StrAppend(&start.log_line,
                    "; the data, its sharding or its shuffling have changed since, so this epoch "
                    "starts again at its first row");
  }
  return start;
}

}  // namespace

uint64_t DataDigest(const JobConfig& job, int32_t worker, int32_t workers) {
  const DataConfig& data = job.data;
  std::string text = absl::StrCat(data.format, " ", worker, "/", workers, " ", data.auto_shard, " ",
                                  data.shuffle_buffer_rows, " ", data.shuffle_seed);
  if (data.format == "text") {
    absl::StrAppend(&text, " ", job.model.window, " ", job.model.negatives, " ",
                    job.model.min_count, " ", job.model.subsample);
  }
  // Names without folders: the same files may be mounted elsewhere.
  for (const DataFile& file : data.train) {
    absl::StrAppend(&text, "\n", std::filesystem::path(file.path).filename().string());
  }
  return HashBytes(text);
}

std::string NothingTrainedText(const DataConfig& data, absl::string_view task) {
  const std::string missing =
      data.drop_remainder ? absl::StrCat("batch of ", data.batch_size,
                                         " rows, and data.drop_remainder leaves out smaller ones")
                          : "row";
  return absl::StrCat("data.train: ", data.train.at(0).path,
                      data.train.size() > 1 ? ", … have" : " has", " no ", missing, ": ", task,
                      " has trained nothing");
}

absl::StatusOr<RunStart> DecideRunStart(const JobConfig& job, absl::string_view stored,
                                        int32_t worker, absl::Span<const RosterRow> roster) {
  const uint64_t digest = DataDigest(job, worker, static_cast<int32_t>(roster.size()));
  int64_t most_runs = 0;       // finished by any other worker
  bool others_behind = false;  // one that was seen has finished fewer runs than this worker
  RunPosition last;
  last.run = 0;
  if (!stored.empty()) {
    ASSIGN_OR_RETURN(last, RunPosition::Decode(stored));
    if (!last.finished) return Continue(job, last, digest);
  }
  for (size_t i = 0; i < roster.size(); ++i) {
    if (static_cast<int32_t>(i) == worker) continue;
    most_runs = std::max(most_runs, roster[i].runs_finished);
    others_behind |= roster[i].beats != 0 && roster[i].runs_finished < last.run;
  }
  const int64_t next_epoch = stored.empty() ? 0 : last.epoch + 1;
  if (most_runs > last.run || last.run == 0) {
    RunStart start = Begin(job, std::max<int64_t>(most_runs, 1), next_epoch, last, digest);
    start.log_line = absl::StrCat("job '", job.name, "': this worker starts run ",
                                  start.position.run, ": ", Amount(job));
    return start;
  }
  if (others_behind) {
    RunStart start = Begin(job, last.run, last.epoch, last, digest);
    start.nothing_to_do = true;
    start.log_line = absl::StrCat("job '", job.name, "': this worker has finished run ", last.run,
                                  " after ", last.total_steps,
                                  " steps, others have not: nothing to train; start the "
                                  "others, or start over with --fresh");
    return start;
  }
  RunStart start = Begin(job, last.run + 1, next_epoch, last, digest);
  start.log_line = absl::StrCat("job '", job.name, "': run ", last.run, " has finished after ",
                                last.total_steps, " steps; trains ", Amount(job), " more");
  return start;
}

}  // namespace cairn
