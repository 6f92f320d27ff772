#include "worker/trainer/resume/run_start.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/hash.h"
#include "common/status.h"

namespace cairn {
namespace {

// A run over data.epochs, from `first_epoch` on. `last`: the end of the previous run.
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

// A run up to the job's totals, from the end of `last` on.
RunStart Extend(const JobConfig& job, int64_t run, const RunPosition& last, uint64_t digest) {
  RunStart start = Begin(job, run, 0, last, digest);
  start.position.run_steps = last.total_steps;
  const bool same_rows = last.data_digest == digest;
  start.position.epoch = same_rows || last.at_max_steps ? last.epoch : last.epoch + 1;
  start.position.row = same_rows ? last.row : 0;
  return start;
}

std::string Amount(const JobConfig& job) {
  std::string text = absl::StrCat(job.data.epochs, job.data.epochs == 1 ? " epoch" : " epochs");
  if (job.data.max_steps > 0) absl::StrAppend(&text, ", at most ", job.data.max_steps, " steps");
  return text;
}

// Whether the job's totals leave steps to train after `last`.
bool TotalsLeaveMore(const JobConfig& job, const RunPosition& last) {
  const int64_t epochs_begun = last.epoch + (last.at_max_steps ? 0 : 1);
  const bool steps = job.data.max_steps == 0 || last.total_steps < job.data.max_steps;
  return steps && epochs_begun < job.data.epochs;
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
  // Names without directories: the same files may be mounted elsewhere.
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
                                        int32_t worker, absl::Span<const RosterRow> roster,
                                        bool more) {
  const uint64_t digest = DataDigest(job, worker, static_cast<int32_t>(roster.size()));
  RunPosition last;
  last.run = 0;
  if (!stored.empty()) {
    ASSIGN_OR_RETURN(last, RunPosition::Decode(stored));
    if (!last.finished) return Continue(job, last, digest);
  }
  int64_t most_runs = 0;       // the most runs that any other worker has finished
  bool others_behind = false;  // some worker that was seen has finished fewer runs than this one
  for (size_t i = 0; i < roster.size(); ++i) {
    if (static_cast<int32_t>(i) == worker) continue;
    most_runs = std::max(most_runs, roster[i].runs_finished);
    others_behind |= roster[i].beats != 0 && roster[i].runs_finished < last.run;
  }
  const int64_t next_run = std::max(last.run + 1, most_runs);
  if (last.run == 0) {
    RunStart start = Begin(job, next_run, 0, last, digest);
    start.log_line = absl::StrCat("job '", job.name, "': this worker starts run ",
                                  start.position.run, ": ", Amount(job));
    return start;
  }
  const std::string finished = absl::StrCat("job '", job.name, "': has finished after ",
                                            last.total_steps, " steps, in epoch ", last.epoch + 1);
  if (more && !others_behind) {
    RunStart start = Begin(job, next_run, last.epoch + 1, last, digest);
    start.log_line = absl::StrCat(finished, "; --continue: trains ", Amount(job), " more");
    return start;
  }
  if (!more && TotalsLeaveMore(job, last)) {
    // If others are still in the run that this worker has finished, extend that run: they too will
    // train up to the new totals.
    RunStart start = Extend(job, others_behind ? last.run : next_run, last, digest);
    start.log_line = absl::StrCat(finished, "; continues to ", Amount(job), " in all");
    return start;
  }
  RunStart start = Extend(job, last.run, last, digest);
  start.nothing_to_do = true;
  start.log_line = absl::StrCat(
      finished, ": nothing to train; ",
      others_behind ? "others have not finished: start them, or start over with --fresh"
                    : "for more raise data.epochs or data.max_steps, or give --continue");
  return start;
}

}  // namespace cairn
