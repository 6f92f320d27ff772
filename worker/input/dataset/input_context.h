// The arguments of input functions, and the options of distributed input.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace cairn {

// Describes the worker and pipeline for which an input function is called. Thread safety: a value.
class InputContext {
 public:
  explicit InputContext(int64_t num_input_pipelines = 1, int64_t input_pipeline_id = 0,
                        int64_t num_replicas_in_sync = 1)
      : num_input_pipelines_(num_input_pipelines),
        input_pipeline_id_(input_pipeline_id),
        num_replicas_in_sync_(num_replicas_in_sync) {}

  int64_t num_input_pipelines() const { return num_input_pipelines_; }
  int64_t input_pipeline_id() const { return input_pipeline_id_; }
  int64_t num_replicas_in_sync() const { return num_replicas_in_sync_; }

  // kInvalidArgument: `global_batch_size` is negative or no multiple of num_replicas_in_sync().
  absl::StatusOr<int64_t> GetPerReplicaBatchSize(int64_t global_batch_size) const;
  // "tf.distribute.InputContext(input pipeline id 0, total: 1)".
  std::string ToText() const;

 private:
  int64_t num_input_pipelines_;
  int64_t input_pipeline_id_;
  int64_t num_replicas_in_sync_;
};

enum class InputReplicationMode {
  kPerWorker,   // one dataset for each worker; its replicas take elements cyclically
  kPerReplica,  // one dataset for each replica (only DistributeDatasetsFromFunction)
};

struct InputOptions {
  // Elements are moved to the memory of their replica's device before the step that uses them.
  // False: they stay where the dataset made them, and nothing is prefetched.
  bool fetch_to_device = true;
  InputReplicationMode replication_mode = InputReplicationMode::kPerWorker;
  // Each replica's own dataset (kPerReplica) puts elements into that device's memory when the step
  // asks; fetch_to_device must be false.
  bool place_dataset_on_device = false;
  // Elements to prefetch for each replica if fetch_to_device is set, at most 2^20; 0: none.
  int64_t per_replica_buffer_size = 1;
};

}  // namespace cairn
