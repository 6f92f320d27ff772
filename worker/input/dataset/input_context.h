// What input functions are told, and the options of distributed input.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace cairn {

// Where an input function is called. Thread safety: a value.
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
  kPerWorker,   // one dataset a worker; its replicas take elements in turn
  kPerReplica,  // one dataset a replica (DistributeDatasetsFromFunction alone)
};

struct InputOptions {
  // Elements are put into the memory of their replica's device, ahead of the step that takes them.
  // False: they stay where the dataset made them, and nothing is read ahead.
  bool fetch_to_device = true;
  InputReplicationMode replication_mode = InputReplicationMode::kPerWorker;
  // Each replica's own dataset (kPerReplica) yields in that device's memory, when the step asks;
  // fetch_to_device must be false.
  bool place_dataset_on_device = false;
  // Elements a replica that are read ahead where fetch_to_device holds; 0: none.
  int64_t per_replica_buffer_size = 1;
};

}  // namespace cairn
