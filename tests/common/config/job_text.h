// Job files for several tests.
#pragma once

namespace cairn {

// The shortest valid job.
inline constexpr char kShortJob[] =
    "model: {type: linear}\n"
    "data: {format: libsvm, features: 123, train: [train.libsvm]}\n";

// Every documented key, with its documented value.
inline constexpr char kManualJob[] = R"(name: a9a
model:
  type: linear            # linear mlp fm wide_deep dlrm matrix_factorization skip_gram
  loss: sigmoid_cross_entropy
  classes: 1
  hidden: [128]
  factors: 8
  embedding: {dim: 16, vocabulary: dynamic}
  init: {type: normal, stddev: 0.05, seed: 1}
data:
  format: libsvm
  train: [train.libsvm]
  eval: [test.libsvm]
  features: 123
  index_base: 1
  label_base: 0
  batch_size: 128
  epochs: 1
  max_steps: 0
  drop_remainder: false
  shuffle: {buffer_rows: 0, seed: 1}
  auto_shard: auto
optimizer:
  type: sgd
  learning_rate: 0.1
  per_variable: []
strategy:
  type: parameter_server
  devices: [cpu:0]
  consistency: async
  staleness_bound_steps: 0
  replicas_to_aggregate: 0
  sync_mean: rows
  pull_ahead_steps: 0
  ps_wait_seconds: 60
  on_worker_loss: continue
  partitioner: {type: min_size, min_shard_bytes: 262144, max_shards: 0}
  cross_device_ops: auto
  communication: {implementation: auto, bytes_per_pack: 0, timeout_seconds: 60}
storage:
  directory: cairn-data
  durability: snapshot
  snapshot_interval_seconds: 5
checkpoint: {directory: "", every_steps: 0, keep: 3, restore: latest}
evaluation: {every_steps: 0}
output: {metrics_file: "", export: "", tensorboard: ""}
)";

}  // namespace cairn
