#include "worker/ctl/data_directory.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/errors.h"
#include "common/status.h"
#include "common/timeline.h"
#include "ps_server/rows/variable.h"
#include "storage/checkpoint_folder.h"
#include "storage/directory.h"
#include "storage/stripe_store.h"
#include "thrift/convert.h"

namespace cairn {
namespace {

constexpr int32_t kAnyServerCount = 1 << 16;  // no server count to check against: specs were
                                              // checked when they were made

// Counts rows and bytes; a key that was rewritten counts once, with its last bytes.
class Counting : public StripeVisitor {
 public:
  explicit Counting(StoredVariable* variable) : variable_(*variable) {}
  absl::Status Header(const StripeId& /*id*/, absl::Span<const Watermark> /*marks*/) override {
    EndStripe();
    ++variable_.stripes;
    return absl::OkStatus();
  }
  absl::Status Image(const StripeId& /*id*/, absl::string_view bytes) override {
    image_bytes_ = static_cast<int64_t>(bytes.size());
    return absl::OkStatus();
  }
  absl::Status Rows(const StripeId& /*id*/, const StoredRows& rows) override {
    for (size_t i = 0; i < rows.size(); ++i) {
      row_bytes_[rows.key(i)] = static_cast<int64_t>(rows.row_bytes());
    }
    return absl::OkStatus();
  }

  // Called after the last stripe too.
  void EndStripe() {
    variable_.bytes += image_bytes_;
    variable_.rows += static_cast<int64_t>(row_bytes_.size());
    for (const auto& [key, bytes] : row_bytes_) variable_.bytes += bytes;
    image_bytes_ = 0;
    row_bytes_.clear();
  }

 private:
  StoredVariable& variable_;
  int64_t image_bytes_ = 0;
  absl::flat_hash_map<int64_t, int64_t> row_bytes_;  // of the current stripe
};

// The index of the server that owns the directory, from the marker file's text.
absl::StatusOr<int32_t> ServerOf(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/CAIRN");
  absl::StatusOr<std::string> text = ReadSmallFile(path);
  if (!text.ok()) {
    return FailedPrecondition(
        directory, " is not the data directory of a server, nor its part (ps-N) of a checkpoint: ",
        text.status().message());
  }
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    int32_t server = 0;
    if (absl::ConsumePrefix(&line, "server_index: ") && absl::SimpleAtoi(line, &server)) {
      return server;
    }
  }
  return DataLoss(path, " does not name a server: '", *text, "'");
}

absl::StatusOr<StoredVariable> ReadVariable(const StripeStore& store, const VariableRecord& record,
                                            int32_t server) {
  StoredVariable variable{.job = record.job};
  ASSIGN_OR_RETURN(const Variable::Kept kept, Variable::Decode(record, server, kAnyServerCount));
  variable.spec = ToWire(kept.spec);
  Counting counting(&variable);
  RETURN_IF_ERROR(store.LoadStripes(record.id, counting));
  counting.EndStripe();
  return variable;
}

}  // namespace

absl::StatusOr<DataDirectory> ReadDataDirectory(const std::string& directory) {
  DataDirectory found;
  ASSIGN_OR_RETURN(found.server, ServerOf(directory));
  const std::optional<std::string> holder =
      LockHolder(absl::StrCat(DatabasePath(directory), "/LOCK"));
  if (holder.has_value()) {
    return FailedPrecondition(directory, " is in use by ", *holder,
                              ": ask that server (--cluster or --servers), or stop it first");
  }
  ASSIGN_OR_RETURN(
      const std::unique_ptr<StripeStore> store,
      StripeStore::OpenReadOnly({.directory = directory, .server_index = found.server}));
  found.boot_count = store->boot_count();
  ASSIGN_OR_RETURN(const std::vector<ShardRecord> shards, store->Shards());
  ASSIGN_OR_RETURN(const std::vector<VariableRecord> records, store->Variables());
  for (const VariableRecord& record : records) {
    absl::StatusOr<StoredVariable> variable = ReadVariable(*store, record, found.server);
    if (!variable.ok()) return Annotate(variable.status(), directory);
    for (const ShardRecord& shard : shards) {
      if (shard.variable == record.id) {
        variable->shards.push_back({shard.shard, shard.update_count});
      }
    }
    found.variables.push_back(*std::move(variable));
  }
  std::ranges::sort(found.variables, [](const auto& a, const auto& b) {
    return std::tie(a.job, a.spec.name) < std::tie(b.job, b.spec.name);
  });
  ASSIGN_OR_RETURN(const std::vector<WorkerRecord> workers, store->Workers());
  for (const WorkerRecord& worker : workers) {
    if (worker.worker == kTimelineWorker) continue;
    found.workers.push_back(
        {worker.job, worker.worker, worker.incarnation, worker.sequence, worker.left});
  }
  std::ranges::sort(found.workers, [](const auto& a, const auto& b) {
    return std::tie(a.job, a.worker) < std::tie(b.job, b.worker);
  });
  return found;
}

absl::Status VerifyFile(const std::string& part, const CheckpointFile& file) {
  return VerifyPartFile(part, {file.name, file.bytes, file.checksum});
}

}  // namespace cairn
