#include "tests/worker/input/dataset/elements.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace cairn::test {
namespace {

using nlohmann::json;

json Value(const Tensor& tensor, size_t i) {
  if (tensor.is_text()) return tensor.texts()[i];
  switch (tensor.dtype()) {
    case DType::kInt64: return tensor.values<int64_t>()[i];
    case DType::kInt32: return tensor.values<int32_t>()[i];
    default: return tensor.ToDoubles()[i];
  }
}

json Nested(const Tensor& tensor, size_t axis, size_t* next) {
  if (axis == tensor.shape().size()) return Value(tensor, (*next)++);
  json rows = json::array();
  for (int64_t i = 0; i < tensor.shape()[axis]; ++i) rows.push_back(Nested(tensor, axis + 1, next));
  return rows;
}

std::string AsText(const Drained& drained) {
  return drained.status.ok() ? drained.elements.dump()
                             : absl::StrCat(drained.elements.dump(), " then ",
                                            absl::StatusCodeToString(drained.status.code()));
}

// Agrees whether any of several threads has data: each thread calls once for each step and waits
// for the others.
class Agreement {
 public:
  explicit Agreement(int64_t workers) : workers_(workers) {}
  absl::StatusOr<bool> Agree(bool local) {
    std::unique_lock<std::mutex> lock(mutex_);
    const int64_t step = step_;
    any_ = any_ || local;
    if (++arrived_ == workers_) {
      answer_ = std::exchange(any_, false);
      arrived_ = 0;
      ++step_;
      changed_.notify_all();
      return answer_;
    }
    // No worker can be a step ahead of one that waits here, so the answer stays valid.
    const bool in_time = changed_.wait_for(lock, std::chrono::seconds(60),
                                           [this, step] { return left_ || step_ > step; });
    if (step_ > step) return answer_;
    return in_time ? absl::UnavailableError("a worker has failed")
                   : absl::DeadlineExceededError("a worker did not come to agree");
  }
  // Keeps the others from waiting for a worker that has failed.
  void Leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }

 private:
  const int64_t workers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t step_ = 0;
  int64_t arrived_ = 0;
  bool any_ = false;
  bool left_ = false;
  bool answer_ = false;
};

}  // namespace

json ToJson(const Tensor& tensor) {
  size_t next = 0;
  return Nested(tensor, 0, &next);
}

json ToJson(const Element& element) {
  if (element.size() == 1) return ToJson(element[0]);
  json components = json::array();
  for (const Tensor& component : element) components.push_back(ToJson(component));
  return components;
}

Drained Drain(DatasetIterator* iterator, size_t limit) {
  Drained drained;
  Element element;
  while (drained.elements.size() < limit) {
    const absl::StatusOr<bool> more = iterator->Next(&element);
    drained.status = more.status();
    if (!more.ok() || !*more) break;
    drained.elements.push_back(ToJson(element));
  }
  return drained;
}

Drained Drain(const Dataset& dataset, size_t limit) {
  absl::StatusOr<std::unique_ptr<DatasetIterator>> iterator = dataset.MakeIterator();
  if (!iterator.ok()) return {.status = iterator.status()};
  return Drain(iterator->get(), limit);
}

std::string Elements(const Dataset& dataset, size_t limit) { return AsText(Drain(dataset, limit)); }

Drained DrainSteps(const DistributedDataset& dataset, size_t limit) {
  absl::StatusOr<std::unique_ptr<DistributedIterator>> iterator = dataset.MakeIterator();
  if (!iterator.ok()) return {.status = iterator.status()};
  Drained drained;
  std::vector<Element> step;
  while (drained.elements.size() < limit) {
    const absl::StatusOr<bool> more = (*iterator)->Next(&step);
    drained.status = more.status();
    if (!more.ok() || !*more) break;
    json replicas = json::array();
    for (const Element& element : step) replicas.push_back(ToJson(element));
    drained.elements.push_back(std::move(replicas));
  }
  return drained;
}

std::string Steps(const absl::StatusOr<DistributedDataset>& dataset, size_t limit) {
  return AsText(dataset.ok() ? DrainSteps(*dataset, limit) : Drained{.status = dataset.status()});
}

InputStrategy MirroredInput(int64_t replicas) {
  return {.local_replicas = replicas,
          .partial_steps = true,
          .per_replica = InputStrategy::PerReplica::kSupported};
}

InputStrategy CentralInput(int64_t replicas) {
  return {.local_replicas = replicas, .per_replica = InputStrategy::PerReplica::kIgnored};
}

InputStrategy OneDeviceInput() { return {.splits = false}; }

std::vector<Drained> RunWorkers(int64_t workers, int64_t replicas, const Distribute& distribute) {
  std::vector<Drained> results(static_cast<size_t>(workers));
  Agreement agreement(workers);
  std::vector<std::thread> threads;
  for (int64_t worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&, worker] {
      InputStrategy strategy = MirroredInput(replicas);
      strategy.workers = workers;
      strategy.worker = worker;
      strategy.agree = [&agreement](bool local) { return agreement.Agree(local); };
      const absl::StatusOr<DistributedDataset> dataset = distribute(strategy);
      Drained& result = results[static_cast<size_t>(worker)];
      result = dataset.ok() ? DrainSteps(*dataset) : Drained{.status = dataset.status()};
      if (!result.status.ok()) agreement.Leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace cairn::test
