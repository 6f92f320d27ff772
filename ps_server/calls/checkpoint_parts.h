// The parts of a checkpoint from which this server restores a job, opened for reading.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps_server/base/server_info.h"
#include "ps_server/rows/variable.h"
#include "storage/stripe_store.h"
#include "thrift/cairn_types.h"

namespace cairn {

// One server's part.
struct CheckpointPart {
  int32_t index = 0;
  const wire::RestoreFolder* folder = nullptr;
  std::unique_ptr<StripeStore> store;
  std::map<std::string, VariableRecord> variables;  // of the job, by name
  std::map<std::pair<uint32_t, uint32_t>, ShardRecord> shards;
  // Workers that resume before the last sequence that this part has of them. The part's stripes
  // have every push up to that sequence, and may have dropped the marks of it.
  std::vector<Watermark> ahead;
};

// Thread safety: none.
class CheckpointParts {
 public:
  // The arguments outlive this. Reading ends with kCancelled once `cancelled` is set.
  CheckpointParts(const ServerInfo& info, const wire::RestoreRequest& request,
                  const std::atomic<bool>& cancelled);

  // Opens all parts, or only this server's part if same(): the other parts need not be reachable
  // then. Verifies their files except RocksDB's tables, and that they fit together. kNotFound: a
  // file or the job is missing. kDataLoss: a file has changed, the parts belong to different
  // checkpoints, or rows are in none of them.
  absl::Status Open();
  // Verifies the tables of a part, which hold nearly all of its bytes. kDataLoss, kNotFound: names
  // the file.
  absl::Status VerifyTables(const CheckpointPart& part) const;

  // Whether the checkpoint has as many servers as this cluster: rows keep their servers.
  bool same() const { return same_; }
  const std::vector<CheckpointPart>& parts() const { return parts_; }
  // The job's variables by name, each by its newest map.
  const std::map<std::string, Variable::Kept>& variables() const { return variables_; }

 private:
  absl::Status OpenPart(int32_t index);
  absl::StatusOr<std::vector<Watermark>> WorkersAhead(const StripeStore& store) const;
  absl::Status VerifyFiles(const CheckpointPart& part, bool tables) const;
  absl::StatusOr<Variable::Kept> Decode(const VariableRecord& record,
                                        const CheckpointPart& part) const;
  absl::Status ReadVariables();
  absl::Status CheckNoneLeft() const;
  absl::Status CheckNoneMissing() const;

  const ServerInfo& info_;
  const wire::RestoreRequest& request_;
  const std::atomic<bool>& cancelled_;
  const std::string job_;  // the name of the job in the checkpoint
  const bool same_;
  std::vector<CheckpointPart> parts_;
  std::map<std::string, Variable::Kept> variables_;
};

}  // namespace cairn
