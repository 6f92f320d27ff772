// Reads datasets to their end, as JSON.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "worker/input/dataset/dataset.h"
#include "worker/input/dataset/distributed_dataset.h"

namespace cairn::test {

// Nested arrays of the tensor's shape; a scalar is a number or a string.
nlohmann::json ToJson(const Tensor& tensor);
// The component, or an array of the components if there are several.
nlohmann::json ToJson(const Element& element);

// The elements that an iterator returns until it ends, fails, or has returned `limit` elements.
struct Drained {
  nlohmann::json elements = nlohmann::json::array();
  absl::Status status;
};
Drained Drain(const Dataset& dataset, size_t limit = 100000);
Drained Drain(DatasetIterator* iterator, size_t limit = 100000);

// The elements as text, "[0,1,2]"; after an error "[0,1] then DATA_LOSS".
std::string Elements(const Dataset& dataset, size_t limit = 100000);

// Steps: an array of arrays, with one element for each replica.
Drained DrainSteps(const DistributedDataset& dataset, size_t limit = 100000);
std::string Steps(const absl::StatusOr<DistributedDataset>& dataset, size_t limit = 100000);

// As TensorFlow's strategies: N local replicas, partial steps, per-replica input.
InputStrategy MirroredInput(int64_t replicas);
// Splits, no partial steps, ignores the replication mode.
InputStrategy CentralInput(int64_t replicas);
InputStrategy OneDeviceInput();

// Runs `workers` workers of `replicas` replicas in a thread each, which agree on the end of data.
// Calls `distribute` in each thread.
using Distribute = std::function<absl::StatusOr<DistributedDataset>(const InputStrategy&)>;
std::vector<Drained> RunWorkers(int64_t workers, int64_t replicas, const Distribute& distribute);

}  // namespace cairn::test
