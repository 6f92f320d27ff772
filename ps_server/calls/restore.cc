// Restores a job from a checkpoint. Its stripes are read from the copies of the servers that made
// the checkpoint, and are written to this server's store under new ids. The records that name them
// are written last, in one batch. Before that batch, the job does not exist; a server that starts
// deletes stripes without a record.

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/crash_point.h"
#include "common/deadline.h"
#include "common/errors.h"
#include "common/log.h"
#include "common/status.h"
#include "common/timeline.h"
#include "ps_server/base/bad_alloc.h"
#include "ps_server/calls/checkpoint_calls.h"
#include "ps_server/calls/checkpoint_parts.h"
#include "ps_server/calls/place_shards.h"
#include "ps_server/persistence/variable_load.h"
#include "thrift/number_limits.h"

namespace cairn {
namespace {

// A variable of the restored job.
struct Incoming {
  VariableSpec before;  // as in the checkpoint
  VariableSpec spec;
  int64_t rows_per_stripe = 0;
  std::shared_ptr<Variable> variable;  // nullptr: this server takes none of its rows
  std::vector<ShardRecord> shards;
};

class Restoring {
 public:
  Restoring(JobCatalog& catalog, const RowAccess& rows, const std::atomic<bool>& cancelled,
            const wire::RestoreRequest& request)
      : catalog_(catalog),
        info_(catalog.info()),
        rows_(rows),
        cancelled_(cancelled),
        request_(request),
        parts_(info_, request, cancelled) {}

  absl::Status Run(wire::RestoreReply& reply) {
    if (DoneBefore()) {
      reply.variables =
          static_cast<int32_t>(catalog_.registry().Find(request_.caller.job)->variables()->size());
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(CheckAbsent());
    RETURN_IF_ERROR(catalog_.CheckStays());
    RETURN_IF_ERROR(parts_.Open());
    for (const auto& [name, kept] : parts_.variables()) {
      incoming_[name] = {
          .before = kept.spec, .spec = kept.spec, .rows_per_stripe = kept.rows_per_stripe};
    }
    if (!parts_.same()) {
      std::vector<VariableSpec*> specs;
      for (auto& [name, incoming] : incoming_) specs.push_back(&incoming.spec);
      PlaceShards(specs, info_.options.server_count);
    }
    RETURN_IF_ERROR(MakeVariables());
    CAIRN_CRASH_POINT("restore: before the stripes");
    absl::Status status = CatchBadAlloc([&] { return LoadAndWrite(); });
    CAIRN_CRASH_POINT("restore: stripes written");
    if (status.ok()) status = CatchBadAlloc([&] { return Commit(); });
    if (!status.ok()) {
      // Once the records may be on disk, the next start decides by them.
      if (!recording_) DropStripes();
      return status;
    }
    for (const auto& [name, incoming] : incoming_) {
      if (incoming.variable != nullptr) ++reply.variables;
    }
    reply.stripes = stripes_;
    reply.bytes = bytes_;
    return absl::OkStatus();
  }

 private:
  std::string SlotText() const { return absl::StrCat("restore of job ", request_.caller.job); }

  // Whether this request has restored the job already, and its reply was lost. Each restore gives
  // workers incarnations that no other restore gives, and no worker trains before the reply.
  bool DoneBefore() const {
    const std::shared_ptr<Job> job = catalog_.registry().Find(request_.caller.job);
    if (job == nullptr || job->variables()->empty()) return false;
    if (request_.timeline > 0) return std::abs(job->timeline()) == request_.timeline;
    if (request_.workers.empty()) return false;
    return std::ranges::all_of(request_.workers, [&](const wire::CheckpointWorker& worker) {
      if (worker.worker == kStepWorker) return true;
      const std::shared_ptr<Session> session = job->FindSession(worker.worker);
      return session != nullptr && session->incarnation() >= worker.incarnation;
    });
  }

  absl::Status CheckAbsent() const {
    const std::shared_ptr<Job> job = catalog_.registry().Find(request_.caller.job);
    if (job == nullptr || job->variables()->empty()) return absl::OkStatus();
    return AlreadyExists("the server holds ", job->variables()->size(), " variables of job ",
                         request_.caller.job, ": drop the job first (--fresh)");
  }

  void DropStripes() {
    const absl::Status dropped =
        CatchBadAlloc([&] { return catalog_.store().DropLeftovers(first_id_, end_id_); });
    // If this fails, the next start of the server deletes them.
    dropped.IgnoreError();
  }

  bool ComesHere(const VariableSpec& spec) const {
    const int32_t here = info_.index();
    return std::ranges::count(spec.bucket_ps, here) > 0 ||
           std::ranges::any_of(spec.shards,
                               [here](const DenseShard& shard) { return shard.ps == here; });
  }

  absl::Status MakeVariables() {
    {
      ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot, catalog_.TakeSlot(SlotText()));
      first_id_ = catalog_.next_id();
      catalog_.ReserveIds(incoming_.size());
      end_id_ = catalog_.next_id();
    }
    uint32_t id = first_id_;
    for (auto& [name, incoming] : incoming_) {
      const uint32_t own_id = id++;
      if (!ComesHere(incoming.spec)) continue;
      ASSIGN_OR_RETURN(incoming.variable,
                       Variable::Make(own_id, request_.caller.job, incoming.spec, info_.index(),
                                      incoming.rows_per_stripe, rows_.budget));
    }
    return absl::OkStatus();
  }

  // Adds the stripes of `incoming` that this server takes from `source`, and their update counts
  // and watermarks there. Whether it takes any.
  bool ListRanges(Incoming& incoming, const CheckpointPart& source) {
    const auto stored = source.variables.find(incoming.spec.name);
    if (stored == source.variables.end() || incoming.variable == nullptr) return false;
    const StripeRange range{.store = source.store.get(),
                            .target = &catalog_.store(),
                            .stored_id = stored->second.id,
                            .variable = incoming.variable.get()};
    const size_t listed = ranges_.size();
    for (HostedShard* shard : incoming.variable->shards()) {
      const uint32_t index = static_cast<uint32_t>(shard->index());
      const HostedTable* table = incoming.variable->table();
      if (table == nullptr && incoming.before.shards[index].ps != source.index) continue;
      const uint32_t stripes =
          table != nullptr ? table->bucket_count() : static_cast<uint32_t>(shard->stripe_count());
      for (uint32_t first = 0; first < stripes;) {
        uint32_t end = table == nullptr ? stripes : first;
        while (end < stripes && table != nullptr && table->stripe(end) != nullptr &&
               incoming.before.bucket_ps[end] == source.index) {
          ++end;
        }
        if (end > first) {
          ranges_.push_back(range);
          ranges_.back().shard = index;
          ranges_.back().first = first;
          ranges_.back().end = end;
        }
        first = std::max(end, first + 1);
      }
      const auto counted = source.shards.find({stored->second.id, index});
      if (counted == source.shards.end()) continue;
      Count(incoming, counted->second);
      Count(incoming, {.shard = index, .watermarks = source.ahead});
    }
    return ranges_.size() > listed;
  }

  // A table's buckets may come from several servers, each of which counted the table's updates.
  // Keeps the highest update count, and the highest sequence of each worker.
  static void Count(Incoming& incoming, const ShardRecord& counted) {
    for (ShardRecord& record : incoming.shards) {
      if (record.shard != counted.shard) continue;
      record.update_count = std::max(record.update_count, counted.update_count);
      Watermarks marks;
      marks.Reset(record.watermarks);
      for (const Watermark& mark : counted.watermarks) {
        marks.Raise({.worker = mark.worker, .sequence = mark.sequence});
      }
      record.watermarks.assign(marks.marks().begin(), marks.marks().end());
      return;
    }
    incoming.shards.push_back(counted);
    incoming.shards.back().variable = incoming.variable->id();
  }

  absl::Status LoadAndWrite() {
    for (const CheckpointPart& source : parts_.parts()) {
      bool tables_needed = false;
      for (auto& [name, incoming] : incoming_) tables_needed |= ListRanges(incoming, source);
      if (tables_needed) RETURN_IF_ERROR(parts_.VerifyTables(source));
    }
    RETURN_IF_ERROR(LoadStripeRanges(rows_.budget, ranges_));
    for (const CheckpointPart& source : parts_.parts()) MarkAhead(source);
    RenewAges();
    for (auto& [name, incoming] : incoming_) {
      if (incoming.variable == nullptr) continue;
      for (HostedShard* shard : incoming.variable->shards()) {
        bytes_ += shard->memory_bytes();
        HostedTable* table = incoming.variable->table();
        HostedDense* dense = incoming.variable->dense(shard->index());
        const uint32_t stripes =
            table != nullptr ? table->bucket_count() : static_cast<uint32_t>(shard->stripe_count());
        for (uint32_t i = 0; i < stripes; ++i) {
          Stripe* stripe =
              table != nullptr ? static_cast<Stripe*>(table->stripe(i)) : dense->stripe(i);
          if (stripe != nullptr) RETURN_IF_ERROR(WriteStripe(*stripe));
        }
      }
    }
    return catalog_.store().Sync();
  }

  void MarkAhead(const CheckpointPart& source) {
    if (source.ahead.empty()) return;
    for (const StripeRange& range : ranges_) {
      if (range.store != source.store.get()) continue;
      HostedTable* const table = range.variable->table();
      HostedDense* const dense = range.variable->dense(static_cast<int32_t>(range.shard));
      for (uint32_t i = range.first; i < range.end; ++i) {
        Stripe* const stripe =
            table != nullptr ? static_cast<Stripe*>(table->stripe(i)) : dense->stripe(i);
        // The marks of a stripe that had moved to the source are exact: the sequences of the source
        // do not apply to it.
        if (stripe->exact()) continue;
        for (const Watermark& mark : source.ahead) {
          stripe->RaiseWatermark({.worker = mark.worker, .sequence = mark.sequence});
        }
      }
    }
  }

  // Rows have the ages that they had in the checkpoint: the time since then does not count. Their
  // tables' latest record of a time says when the checkpoint was made.
  void RenewAges() {
    std::optional<int64_t> last;
    ForEachTableStripe([&](EmbeddingStripe& stripe) {
      last = std::max(last, stripe.LastAgeTime());  // nullopt is less than any time
    });
    const std::optional<absl::Time> now = info_.options.row_clock();
    if (!last.has_value() || !now.has_value()) return;
    const int64_t since = absl::ToUnixSeconds(*now) - *last;
    ForEachTableStripe([&](EmbeddingStripe& stripe) { stripe.ShiftAges(since); });
  }

  void ForEachTableStripe(absl::FunctionRef<void(EmbeddingStripe&)> visit) {
    for (const StripeRange& range : ranges_) {
      HostedTable* const table = range.variable->table();
      if (table == nullptr) continue;
      for (uint32_t i = range.first; i < range.end; ++i) visit(*table->stripe(i));
    }
  }

  absl::Status WriteStripe(Stripe& stripe) {
    if (cancelled_.load()) return absl::CancelledError("writing the rows was cancelled");
    ++stripes_;
    const std::unique_ptr<StripeBatch> batch = catalog_.store().NewBatch(stripe.id());
    {
      absl::MutexLock lock(&stripe.mutex());
      stripe.Drain(*batch);
    }
    return catalog_.store().Write(*batch);
  }

  std::vector<WorkerRecord> Workers() const {
    std::vector<WorkerRecord> records;
    // Fences the workers of the job that was dropped, although the caller's clock may be behind.
    // Only on ps:0: an incarnation above those that it grants would fence the job's next workers,
    // too.
    const int64_t erased =
        info_.index() == 0 ? catalog_.registry().LastErased(request_.caller.job) : 0;
    int64_t floor =
        erased == 0 ? 0 : FirstIncarnation(NewTimeline(/*servers=*/1, erased, absl::UnixEpoch()));
    for (const wire::CheckpointWorker& worker : request_.workers) {
      if (worker.worker == kTimelineWorker) continue;  // replaced in AddTimeline
      records.push_back({.job = request_.caller.job,
                         .worker = worker.worker,
                         .incarnation = std::max(worker.incarnation, floor),
                         .sequence = worker.sequence,
                         .position = worker.position,
                         .left = true});  // no worker waits for it before it says hello
      floor = std::max(floor, worker.incarnation);
    }
    // Workers that said hello before the restore start over too, also those that the checkpoint
    // does not have. One of them may belong to the job that was dropped: it may have come back here
    // before its other servers dropped the job. A worker's next start gets a higher incarnation
    // from ps:0, whose restore raises the incarnation in the same way.
    const std::shared_ptr<Job> job = catalog_.registry().Find(request_.caller.job);
    if (job == nullptr) return records;
    for (const auto& session : job->sessions()) {
      const int64_t fence = std::min(session->incarnation() + 1, kMaxIncarnation);
      const auto known = std::ranges::find(records, session->worker(), &WorkerRecord::worker);
      if (known != records.end()) {
        known->incarnation = std::max(known->incarnation, fence);
      } else {
        records.push_back({.job = request_.caller.job,
                           .worker = session->worker(),
                           .incarnation = std::max(floor, fence),
                           .left = true});
      }
    }
    return records;
  }

  // Steps that the stripes contain must not be applied again: if the request does not say which
  // step closed last, derives it from the shards' watermarks.
  void AddSteps(std::vector<WorkerRecord>& workers) const {
    int64_t closed = 0;
    for (const auto& [name, incoming] : incoming_) {
      for (const ShardRecord& shard : incoming.shards) {
        for (const Watermark& mark : shard.watermarks) {
          if (mark.worker == kStepWorker) closed = std::max(closed, mark.sequence);
        }
      }
    }
    const bool told = std::ranges::any_of(
        workers, [](const WorkerRecord& record) { return record.worker == kStepWorker; });
    if (told || closed == 0) return;
    workers.push_back({.job = request_.caller.job, .worker = kStepWorker, .sequence = closed});
  }

  void AddTimeline(std::vector<WorkerRecord>& workers) const {
    if (request_.timeline <= 0) return;
    workers.push_back({.job = request_.caller.job,
                       .worker = kTimelineWorker,
                       .incarnation = request_.timeline,
                       .left = true});  // until a worker says hello
  }

  absl::StatusOr<std::shared_ptr<Job>> MakeJob(absl::Span<const WorkerRecord> workers) {
    ASSIGN_OR_RETURN(std::shared_ptr<Job> job,
                     catalog_.registry().Make(request_.caller.job, Quota::For::kCaller));
    for (const WorkerRecord& record : workers) {
      if (record.worker == kStepWorker) {
        job->steps().Load(record, {});
        continue;
      }
      if (record.worker == kTimelineWorker) {
        job->AddTimelineRecord(std::make_shared<Session>(record, info_.applied_is_durable()));
        continue;
      }
      RETURN_IF_ERROR(job->AddSession(std::make_shared<Session>(record, info_.applied_is_durable()),
                                      Quota::For::kCaller)
                          .status());
    }
    return job;
  }

  // Makes the job visible, on disk and in memory.
  absl::Status Commit() {
    ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot, catalog_.TakeSlot(SlotText()));
    RETURN_IF_ERROR(rows_.flusher.failure());
    RETURN_IF_ERROR(CheckAbsent());
    // No snapshot may run in the meantime: it could still write the workers' earlier records.
    return rows_.flusher.Exclusively([&]() ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::Status {
      std::vector<WorkerRecord> workers = Workers();
      AddSteps(workers);
      AddTimeline(workers);
      std::vector<VariableRecord> variables;
      std::vector<ShardRecord> shards;
      std::vector<std::shared_ptr<Variable>> made;
      for (const auto& [name, incoming] : incoming_) {
        if (incoming.variable == nullptr) continue;
        made.push_back(incoming.variable);
        variables.push_back(incoming.variable->record());
        shards.insert(shards.end(), incoming.shards.begin(), incoming.shards.end());
        for (HostedShard* shard : incoming.variable->shards()) {
          for (const ShardRecord& record : incoming.shards) {
            if (record.shard == static_cast<uint32_t>(shard->index())) shard->Load(record);
          }
        }
      }
      ASSIGN_OR_RETURN(const std::shared_ptr<Job> job, MakeJob(workers));
      job->SetVariables(job->VariablesWith(made));
      Registry::Jobs::node_type node = Registry::NodeOf(job);
      const absl::Status why = FailedPrecondition("job ", request_.caller.job,
                                                  " was restored meanwhile: start this task again");
      // The new job replaces the job that had only sessions.
      const std::shared_ptr<Job> before = catalog_.registry().Find(request_.caller.job);
      std::optional<TracedLock> deciding;
      if (before != nullptr) {
        deciding.emplace(&before->steps().deciding(), &catalog_.waits(), "epoch",
                         "a decision to be written");
      }
      recording_ = true;
      const absl::Status put = CatchBadAlloc(
          [&] { return catalog_.store().PutJob(request_.caller.job, variables, shards, workers); });
      if (!put.ok()) return rows_.flusher.Refuse(put);
      CAIRN_CRASH_POINT("restore: job written");
      if (before != nullptr) before->steps().EndDecisions();
      if (const std::shared_ptr<Job> replaced = catalog_.registry().Put(std::move(node))) {
        replaced->EndWaits(why);
      }
      return absl::OkStatus();
    });
  }

  JobCatalog& catalog_;
  const ServerInfo& info_;
  const RowAccess& rows_;
  const std::atomic<bool>& cancelled_;
  const wire::RestoreRequest& request_;
  CheckpointParts parts_;
  std::map<std::string, Incoming>
      incoming_;  // by name, so that PlaceShards has the same order everywhere
  std::vector<StripeRange> ranges_;
  uint32_t first_id_ = 0;
  uint32_t end_id_ = 0;
  bool recording_ = false;  // PutJob has begun
  int64_t stripes_ = 0;
  int64_t bytes_ = 0;
};

absl::Status CheckFolders(const wire::RestoreRequest& request) {
  if (request.folders.empty()) {
    return absl::InvalidArgumentError("the request names no directory of a checkpoint");
  }
  for (const wire::RestoreFolder& folder : request.folders) {
    if (!absl::StartsWith(folder.path, "/")) {
      return InvalidArgument("directory '", folder.path, "' is not an absolute path");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Checkpoints::Verify(const JobCatalog& catalog, const wire::RestoreRequest& request,
                                 wire::RestoreReply& reply) const {
  RETURN_IF_ERROR(catalog.CheckStays());
  CheckpointParts parts(info_, request, cancelled_);
  RETURN_IF_ERROR(parts.Open());
  for (const CheckpointPart& part : parts.parts()) RETURN_IF_ERROR(parts.VerifyTables(part));
  reply.__set_verified(true);
  return absl::OkStatus();
}

absl::Status Checkpoints::Restore(JobCatalog& catalog, const RowAccess& rows,
                                  const wire::RestoreRequest& request, wire::RestoreReply& reply) {
  const absl::Duration begin = MonotonicNow();
  const std::string what = absl::StrCat(
      info_.name, ": restore of job ", request.caller.job, request.folders.empty() ? "" : " from ",
      request.folders.empty() ? "" : request.folders.front().path);
  RETURN_IF_ERROR(Annotate(CheckFolders(request), what));
  ASSIGN_OR_RETURN(const ExclusiveSlot::Held slot, TakeSlot(what));
  const absl::Status status = request.verify_only
                                  ? Verify(catalog, request, reply)
                                  : Restoring(catalog, rows, cancelled_, request).Run(reply);
  CAIRN_CRASH_POINT("restore: before the answer");
  if (!status.ok()) return Annotate(AsStopping(status), what);
  if (request.verify_only) return absl::OkStatus();
  reply.seconds = absl::ToDoubleSeconds(MonotonicNow() - begin);
  LOG(INFO) << what << ": " << reply.variables << " variables, " << reply.stripes << " stripes, "
            << reply.bytes << " bytes, in " << absl::FormatDuration(MonotonicNow() - begin);
  return absl::OkStatus();
}

}  // namespace cairn
