// Map in several threads; keeps the input's order.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "worker/input/dataset/dataset.h"

namespace cairn::steps {

// The threads start with the first Next. The destructor joins them; it waits for running calls of
// the function and of the input.
class ParallelMapIterator : public DatasetIterator {
 public:
  ParallelMapIterator(std::unique_ptr<DatasetIterator> input,
                      std::shared_ptr<const MapFunction> function, int32_t calls);
  ~ParallelMapIterator() override;
  absl::StatusOr<bool> Next(Element* element) override;

 private:
  struct Slot {
    absl::Status status;
    Element element;
    bool done = false;
  };

  void Run();
  // Reads the next element of the input into a new slot at the end of slots_; null: stop.
  Slot* ReadNext();

  const std::unique_ptr<DatasetIterator> input_ ABSL_GUARDED_BY(input_mutex_);
  const std::shared_ptr<const MapFunction> function_;
  const size_t calls_;
  // Held while the input is read and its slot appended, so that slots are in the input's order.
  absl::Mutex input_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  absl::Mutex mutex_;
  absl::CondVar room_;  // slots_ got shorter, or stop_ is set
  absl::CondVar done_;  // the first slot may be done
  // One slot for each element that was read and not yet returned. In a deque references stay valid
  // while both ends move.
  std::deque<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  bool input_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace cairn::steps
